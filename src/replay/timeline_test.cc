// SPDX-License-Identifier: Apache-2.0
#include "src/replay/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/formats/json.h"
#include "src/replay/moves.h"
#include "src/replay/sample.h"
#include "src/replay/timeline_report.h"

namespace tessera::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TraceNode NodeOf(std::string name, int gpus) {
  return {.name = std::move(name), .cpu_milli = 100'000, .gpus = gpus, .model = "T4"};
}

TracePod PodOf(std::string name, int gpus, int64_t created, int64_t deleted, int milli = 1000) {
  return {.name = std::move(name),
          .cpu_milli = 1000,
          .gpus = gpus,
          .per_gpu = MilliGpu(gpus > 0 ? milli : 0),
          .created = created,
          .deleted = deleted};
}

TimelineResult TimelineOf(const std::vector<TraceNode>& nodes, std::vector<TracePod> pods,
                          bool moves = false) {
  const auto results =
      RunTimelines(nodes, {.pods = std::move(pods), .has_times = true},
                   {.policies = {"BestFit"}, .seeds = {1}, .as_recorded = true, .moves = moves});
  EXPECT_TRUE(results.ok()) << results.status().ToString();
  return results->front();
}

std::vector<int64_t> WaitsOf(const TimelineResult& result, PodSize size) {
  return result.waits[static_cast<size_t>(size)];
}

TEST(TimelineTest, PodsStartAtOnceIfTheyFit) {
  const auto result = TimelineOf({NodeOf("n", 2)}, {PodOf("a", 1, 0, 100), PodOf("b", 1, 10, 20)});
  EXPECT_THAT(WaitsOf(result, PodSize::kOne), ElementsAre(0, 0));
  EXPECT_EQ(result.last_pod_end, 100);
  EXPECT_EQ(result.blocked.waited, 0u);
}

TEST(TimelineTest, APodThatDoesNotFitWaitsAndThenRunsForItsWholeLifetime) {
  const auto result = TimelineOf({NodeOf("n", 1)}, {PodOf("a", 1, 0, 100), PodOf("b", 1, 10, 50)});
  EXPECT_THAT(WaitsOf(result, PodSize::kOne), ElementsAre(0, 90));
  EXPECT_EQ(result.last_pod_end, 140);
  EXPECT_EQ(result.blocked.waited, 1u);
  EXPECT_EQ(result.blocked.enough_idle, 0u);
}

TEST(TimelineTest, GpuHoursCountAllocationsDuringTheTrace) {
  const auto result =
      TimelineOf({NodeOf("n", 1)}, {PodOf("a", 1, 3600, 7200), PodOf("b", 1, 3600, 14400, 500)});
  // Pod a runs for an hour, then pod b for two hours. The third hour of b is after the end of the
  // observed time.
  EXPECT_NEAR(result.gpu_hours, 1 + 0.5 * 2, 1e-6);
  EXPECT_NEAR(result.allocation, 100 * 2.0 / 3, 1e-6);
  ASSERT_EQ(result.points.size(), static_cast<size_t>(kTimelinePoints));
  EXPECT_NEAR(result.points.front().allocation, 100, 1e-6);
  EXPECT_NEAR(result.points.front().waiting, 0.5, 1e-6);
  EXPECT_NEAR(result.points.back().allocation, 50, 1e-6);
}

TEST(TimelineTest, FreedGpusGoToTheLongestWaitingPodThatFits) {
  const auto result =
      TimelineOf({NodeOf("n", 2)}, {PodOf("a", 1, 0, 100), PodOf("b", 1, 0, 200),
                                    PodOf("large", 2, 10, 20), PodOf("small", 1, 20, 40)});
  // At 100 one GPU is freed, which is too few for the first pod in the queue.
  EXPECT_THAT(WaitsOf(result, PodSize::kOne), ElementsAre(0, 0, 80));
  EXPECT_THAT(WaitsOf(result, PodSize::kTwo), ElementsAre(190));
}

TEST(TimelineTest, APodWithoutDurationArrivesAndLeaves) {
  const auto result = TimelineOf({NodeOf("n", 1)}, {PodOf("a", 1, 5, 5), PodOf("b", 1, 5, 9)});
  EXPECT_THAT(WaitsOf(result, PodSize::kOne), ElementsAre(0, 0));
}

TEST(TimelineTest, PodsThatFitOnNoEmptyNodeAreLeftOut) {
  const auto result = TimelineOf({NodeOf("n", 2)},
                                 {PodOf("a", 1, 0, 9), PodOf("b", 4, 0, 9), PodOf("c", 99, 0, 9)});
  EXPECT_EQ(result.never_scheduled, 2u);
  EXPECT_EQ(result.blocked.waited, 0u);
}

// Two nodes with one idle GPU each when a pod for two arrives.
std::vector<TracePod> Scattered() {
  return {PodOf("a", 1, 0, 10), PodOf("b", 1, 0, 100), PodOf("c", 1, 1, 100), PodOf("d", 1, 1, 10),
          PodOf("e", 2, 20, 50)};
}

TEST(TimelineTest, CountsPodsForWhichMovesWouldMakeRoom) {
  const auto result = TimelineOf({NodeOf("m", 2), NodeOf("n", 2)}, Scattered());
  EXPECT_THAT(WaitsOf(result, PodSize::kTwo), ElementsAre(80));
  EXPECT_EQ(result.blocked.waited, 1u);
  EXPECT_EQ(result.blocked.enough_idle, 1u);
  EXPECT_EQ(result.blocked.room_by_moves, 1u);
  EXPECT_EQ(result.blocked.moved, 1u);
}

TEST(TimelineTest, MovesPodsIfAllowed) {
  const auto result = TimelineOf({NodeOf("m", 2), NodeOf("n", 2)}, Scattered(), true);
  EXPECT_THAT(WaitsOf(result, PodSize::kTwo), ElementsAre(0));
  EXPECT_EQ(result.blocked.moved, 1u);
  EXPECT_EQ(result.last_pod_end, 100);  // a moved pod keeps its end
}

TEST(TimelineTest, IsTheSameEachTimeAndOnAnyNumberOfThreads) {
  std::vector<TracePod> pods;
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    const int64_t created = static_cast<int64_t>(random.Below(1000));
    const int sizes[] = {1, 1, 1, 2, 4};
    pods.push_back(PodOf(fmt::format("p{}", i), sizes[random.Below(5)], created,
                         created + static_cast<int64_t>(random.Below(200))));
  }
  std::vector<TraceNode> nodes;
  for (int i = 0; i < 40; ++i) nodes.push_back(NodeOf(fmt::format("n{}", i), 4));
  const auto json = [&](int jobs) {
    return ToJson(*RunTimelines(
        nodes, {.pods = pods, .has_times = true},
        {.policies = {"FGD", "Random"}, .seeds = {1, 2}, .moves = true, .threads = jobs}));
  };
  EXPECT_EQ(json(1), json(4));
}

TEST(TimelineTest, RejectsATraceWithoutCreationAndDeletionTimes) {
  const auto results = RunTimelines({NodeOf("n", 1)}, {.pods = {PodOf("a", 1, 0, 1)}},
                                    {.policies = {"FGD"}, .seeds = {1}});
  EXPECT_EQ(results.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(results.status().message(), HasSubstr("creation_time and deletion_time"));
}

TEST(TimelineTest, JsonHasWaitingBySizeAndPointsOverTime) {
  const auto json = ParseJson(
      ToJson({TimelineOf({NodeOf("n", 1)}, {PodOf("a", 1, 0, 100), PodOf("b", 1, 10, 50)})}));
  ASSERT_TRUE(json.ok());
  const Json& timeline = json->Find("timelines")->items()[0];
  EXPECT_EQ(*timeline.StringAt("policy"), "BestFit");
  const Json* waits = timeline.Find("waiting")->Find("1");
  EXPECT_EQ(*waits->IntAt("pods"), 2);
  EXPECT_EQ(waits->Find("mean")->number_text(), "45.0");
  EXPECT_EQ(*waits->IntAt("max"), 90);
  EXPECT_EQ(timeline.Find("points")->items().size(), static_cast<size_t>(kTimelinePoints));
}

TEST(TimelineTest, PodsOfOneShapeStartInTheirOrder) {
  const auto result = TimelineOf({NodeOf("n", 1)}, {PodOf("a", 1, 0, 100), PodOf("b", 1, 10, 50),
                                                    PodOf("c", 1, 20, 30), PodOf("d", 1, 20, 90)});
  EXPECT_THAT(WaitsOf(result, PodSize::kOne), ElementsAre(0, 90, 120, 130));
}

TEST(TimelineTest, TheMeanWaitIsWeightedByGpus) {
  const auto result =
      TimelineOf({NodeOf("n", 2)}, {PodOf("a", 2, 0, 100), PodOf("b", 1, 50, 60, 500)});
  EXPECT_NEAR(result.mean_wait, 50 * 0.5 / 2.5, 1e-6);
}

std::vector<TracePod> Mixed() {
  std::vector<TracePod> pods;
  for (int i = 0; i < 100; ++i) {
    const int64_t created = i * i;
    pods.push_back(PodOf(fmt::format("p{:03}", i), i % 10 == 0 ? 4 : 1, created,
                         created + (i == 50 ? 10'000'000 : 100 + i)));
  }
  return pods;
}

TEST(SampleTest, AsRecordedContainsEachPodOnceInOrderOfArrival) {
  const Sample sample =
      AsRecorded({PodOf("b", 1, 5, 9), PodOf("a", 1, 5, 30), PodOf("c", 1, 2, 3)});
  ASSERT_EQ(sample.arrivals.size(), 3u);
  EXPECT_EQ(sample.arrivals[0].pod, 2u);
  EXPECT_EQ(sample.arrivals[1].pod, 1u);
  EXPECT_EQ(sample.arrivals[1].lifetime, 25);
  EXPECT_EQ(sample.begin, 2);
  EXPECT_EQ(sample.end, 30);
}

TEST(SampleTest, PeakIsTheLargestConcurrentDemand) {
  const std::vector<TracePod> pods = {PodOf("a", 2, 0, 10), PodOf("b", 1, 10, 20),
                                      PodOf("c", 1, 15, 30)};
  EXPECT_EQ(PeakMilli(pods, AsRecorded(pods).arrivals), 2000);
}

TEST(SampleTest, ASteadyLoadRequestsItsPercentOfTheGpuTime) {
  const auto pods = Mixed();
  for (const int load : {50, 100, 130}) {
    Random random(5);
    const Sample sample = SteadyLoad(pods, 500'000, load, random);
    double work = 0, requested = 0;
    for (const Arrival& arrival : sample.arrivals) {
      requested += static_cast<double>(pods[arrival.pod].milli());
      work += static_cast<double>(pods[arrival.pod].milli() * arrival.lifetime);
      EXPECT_GE(arrival.created, 0);
      EXPECT_LE(arrival.created, sample.end);
    }
    EXPECT_NEAR(100 * work / (500'000.0 * static_cast<double>(sample.end)), load, load * 0.01);
    EXPECT_NEAR(requested, 500'000.0 * kRequestedMultiple, 8000);
  }
}

TEST(SampleTest, ASteadyLoadRoughlyKeepsOrderAndLifetimes) {
  const auto pods = Mixed();
  Random random(5);
  const Sample sample = SteadyLoad(pods, 500'000, 100, random);
  double early = 0, late = 0;  // mean arrival of the first and last tenth of the list
  size_t early_count = 0, late_count = 0;
  for (const Arrival& arrival : sample.arrivals) {
    const auto lifetime = static_cast<double>(
        std::min(pods[arrival.pod].deleted - pods[arrival.pod].created, kMaxLifetimeSeconds));
    EXPECT_NEAR(static_cast<double>(arrival.lifetime), lifetime, 0.05 * lifetime + 1);
    const double position = static_cast<double>(arrival.created) / static_cast<double>(sample.end);
    if (arrival.pod < 10) early += position, ++early_count;
    if (arrival.pod >= 90) late += position, ++late_count;
  }
  EXPECT_LT(early / static_cast<double>(early_count), 0.1);
  EXPECT_GT(late / static_cast<double>(late_count), 0.9);
}

TEST(MoverTest, UndoPutsAllPodsBack) {
  placement::Cluster cluster;
  for (const char* name : {"m", "n"}) {
    placement::NodeSpec spec{.name = name, .cpu_milli = 100};
    spec.gpus.resize(2);
    ASSERT_TRUE(cluster.AddNode(spec).ok());
  }
  const auto shape_of = [&](int gpus) {
    placement::Demand demand;
    demand.gpu_demands = {{.count = gpus, .milli = kWholeGpu}};
    return *cluster.Intern(demand);
  };
  const auto one = shape_of(1), two = shape_of(2);
  placement::Pick first;
  first.masks[0] = 1;
  std::map<placement::PodId, int> pods = {{*cluster.Place(one, 0, first), 0},
                                          {*cluster.Place(one, 1, first), 1}};
  const auto policy = *placement::MakePolicy("BestFit", cluster, {});
  Mover mover(cluster, *policy, [&](placement::PodId before, placement::PodId now) {
    pods[now] = pods.at(before);
    pods.erase(before);
  });
  EXPECT_TRUE(mover.HasEnoughIdle(two));
  auto made = mover.MakeRoom(two);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->moved.size(), 1u);
  EXPECT_EQ(cluster.free_milli(), 0);
  mover.Undo(&*made);
  ASSERT_EQ(pods.size(), 2u);
  for (const auto& [id, node] : pods) {
    ASSERT_NE(cluster.Find(id), nullptr);
    EXPECT_EQ(cluster.Find(id)->node, static_cast<placement::NodeId>(node));
    EXPECT_EQ(cluster.Find(id)->pick, first);
  }
}

}  // namespace
}  // namespace tessera::replay
