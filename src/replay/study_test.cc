// SPDX-License-Identifier: Apache-2.0
#include "src/replay/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/formats/json.h"
#include "src/replay/chart.h"
#include "src/replay/report.h"

namespace tessera::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TraceNode NodeOf(std::string name, int64_t cpu_milli, int gpus) {
  return {.name = std::move(name),
          .cpu_milli = cpu_milli,
          .memory = GiB(64),
          .gpus = gpus,
          .model = "T4"};
}

TracePod PodOf(std::string name, int64_t cpu_milli, int gpus, int milli) {
  return {
      .name = std::move(name), .cpu_milli = cpu_milli, .gpus = gpus, .per_gpu = MilliGpu(milli)};
}

// Half of the GPUs are on a node with too little CPU for the pods.
struct SmallTrace {
  std::vector<TraceNode> nodes = {NodeOf("large", 100'000, 4), NodeOf("small", 500, 4)};
  std::vector<TracePod> pods;
  SmallTrace() {
    for (int i = 0; i < 16; ++i) pods.push_back(PodOf(fmt::format("p{:02}", i), 1000, 1, 500));
  }
};

RunResult RunOf(const SmallTrace& trace, const RunOptions& options) {
  const FakeClock clock;
  auto result = Run(trace.nodes, trace.pods, options, clock);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *std::move(result);
}

Study StudyOf(const SmallTrace& trace, int jobs) {
  const FakeClock clock;
  auto study = RunStudy(
      trace.nodes, trace.pods,
      {.policies = {"FGD", "Random"}, .seeds = {1, 2, 3}, .load = 125, .threads = jobs}, clock);
  EXPECT_TRUE(study.ok()) << study.status().ToString();
  return *std::move(study);
}

TEST(RunTest, AllocationFollowsArrivalsUntilPodsNoLongerFit) {
  const RunResult run = RunOf(SmallTrace(), {.policy = "BestFit", .load = 100});
  ASSERT_EQ(run.points.size(), 101u);
  EXPECT_EQ(run.points[0].allocation, 0);
  EXPECT_DOUBLE_EQ(run.points[25].allocation, 25);
  EXPECT_DOUBLE_EQ(run.points[50].allocation, 50);
  EXPECT_DOUBLE_EQ(run.points[100].load, 100);
  EXPECT_DOUBLE_EQ(run.points[100].allocation, 50);
  EXPECT_DOUBLE_EQ(run.points[100].refused[static_cast<size_t>(PodSize::kShare)], 4);
}

TEST(RunTest, FragmentationIsIdleGpuThatNoTypicalPodCanUse) {
  const RunResult run = RunOf(SmallTrace(), {.policy = "BestFit", .load = 100});
  // The node without CPU is fragmented from the start; at the end it has all idle GPUs.
  EXPECT_DOUBLE_EQ(run.points[0].fragmentation, 50);
  EXPECT_DOUBLE_EQ(run.points[100].fragmentation, 50);
  EXPECT_DOUBLE_EQ(run.points[100].idle_fragmented, 100);
}

TEST(RunTest, APodLargerThanTheClusterIsRejectedAndCounts) {
  SmallTrace trace;
  trace.pods = {PodOf("huge", 1000, 100, 1000), PodOf("more", 1'000'000, 1, 1000)};
  const RunResult run = RunOf(trace, {.policy = "FGD", .load = 100'000});
  EXPECT_EQ(run.points.back().allocation, 0);
  EXPECT_GT(run.points.back().refused[static_cast<size_t>(PodSize::kOther)] +
                run.points.back().refused[static_cast<size_t>(PodSize::kOne)],
            0);
}

TEST(RunTest, APodWithoutGpusTakesCpuFromGpuPods) {
  SmallTrace trace;
  trace.pods = {PodOf("cpu", 99'500, 0, 0), PodOf("gpu", 1000, 1, 1000)};
  trace.nodes.pop_back();
  int rejected = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RunResult run = RunOf(trace, {.policy = "FGD", .seed = seed, .load = 25});
    rejected += run.points.back().allocation == 0;
  }
  // A CPU pod that arrives first leaves too little CPU for the GPU pod.
  EXPECT_GT(rejected, 2);
  EXPECT_LT(rejected, 18);
}

TEST(RunTest, RejectsAClusterWithoutGpus) {
  SmallTrace trace;
  trace.nodes = {NodeOf("cpu", 1000, 0)};
  const FakeClock clock;
  EXPECT_THAT(replay::Run(trace.nodes, trace.pods, {.policy = "FGD"}, clock).status().message(),
              HasSubstr("no GPUs"));
}

TEST(StudyTest, HasRunsByPolicyThenSeedAndTheirMeans) {
  const Study study = StudyOf(SmallTrace(), 1);
  ASSERT_EQ(study.runs.size(), 6u);
  EXPECT_EQ(study.runs[3].policy, "Random");
  EXPECT_EQ(study.runs[4].seed, 2u);
  ASSERT_EQ(study.means.size(), 2u);
  double sum = 0;
  for (size_t n = 3; n < 6; ++n) sum += study.runs[n].points[70].fragmentation;
  EXPECT_NEAR(study.means[1].points[70].fragmentation, sum / 3, 1e-9);
}

TEST(StudyTest, IsTheSameOnAnyNumberOfThreads) {
  const SmallTrace trace;
  const std::string json = ToJson(StudyOf(trace, 1));
  EXPECT_EQ(ToJson(StudyOf(trace, 4)), json);
  EXPECT_EQ(ToJson(StudyOf(trace, 1)), json);
}

TEST(ReportTest, JsonHasRunsAndMeansWithPointsByPercent) {
  const auto json = ParseJson(ToJson(StudyOf(SmallTrace(), 1)));
  ASSERT_TRUE(json.ok());
  const Json& run = json->Find("runs")->items()[1];
  EXPECT_EQ(*run.StringAt("policy"), "FGD");
  EXPECT_EQ(*run.IntAt("seed"), 2);
  const Json& point = run.Find("points")->items()[50];
  EXPECT_EQ(*point.IntAt("load"), 50);
  EXPECT_EQ(point.Find("allocation")->number_text(), "50.0000");
  EXPECT_TRUE(point.Find("fragmentation")->is_number());
  const Json& mean = json->Find("means")->items()[0];
  EXPECT_EQ(*mean.StringAt("policy"), "FGD");
  EXPECT_EQ(mean.Find("points")->items().size(), 126u);
  EXPECT_EQ(mean.Find("refused")->Find("share")->number_text(), "6.000");
}

TEST(ReportTest, CsvHasALineForEachPoint) {
  const std::string csv = ToCsv(StudyOf(SmallTrace(), 1));
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "policy,seed,load,allocation,fragmentation,idle_fragmented");
  EXPECT_THAT(csv, HasSubstr("\nFGD,1,50,50.0000,"));
  EXPECT_THAT(csv, HasSubstr("\nRandom,mean,0,0.0000,50.0000,50.0000\n"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 8 * 126);
}

TEST(ReportTest, TheTableShowsADashForALoadThatWasNotReached) {
  Study study = StudyOf(SmallTrace(), 1);
  study.means[1].points.resize(95);
  EXPECT_THAT(ToTable(study), HasSubstr("       90 %      100 %      125 %"));
  EXPECT_THAT(ToTable(study), HasSubstr("          -          -\n"));
}

TEST(PlotTest, NamesPoliciesAndUnits) {
  const std::string svg = ToSvg(StudyOf(SmallTrace(), 1));
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  for (const char* text : {"FGD", "Random", "Allocated, % of all GPUs", "mean of 3 seeds"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
}

TEST(PlotTest, TicksAreRoundNumbersAroundTheData) {
  EXPECT_THAT(Ticks(0, 130, 7), ElementsAre(0, 20, 40, 60, 80, 100, 120, 140));
  EXPECT_THAT(Ticks(3, 3, 5).size(), ::testing::Ge(1u));
}

}  // namespace
}  // namespace tessera::replay
