// SPDX-License-Identifier: Apache-2.0
// Repeats the published results of the FGD experiments: allocation at loads 100 and 130, mean of
// ten seeds. The openb traces are public and not part of the project. TESSERA_TRACES names their
// directory, or a directory that has them in openb/ or in cluster-trace-gpu-v2023/csv/.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "src/replay/study.h"

namespace tessera::replay {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 1;
#else
constexpr uint64_t kSeeds = 10;
#endif
constexpr uint64_t kFewSeeds = std::min<uint64_t>(kSeeds, 3);
constexpr size_t kPolicies = 6;
constexpr std::array<const char*, kPolicies> kNames = {"Random",     "DotProd", "GpuClustering",
                                                       "GpuPacking", "BestFit", "FGD"};

// Percent of all GPUs: means of ten seeds at loads 100 and 130, and the larger of the two standard
// deviations between seeds.
struct PublishedFigure {
  double at_100, at_130, deviation;
};

struct Published {
  const char* trace;
  std::array<PublishedFigure, kPolicies> policies;
};

constexpr std::array<Published, 5> kPublished = {{
    {"default",
     {{{86.30, 87.47, 0.33},
       {90.62, 90.85, 0.20},
       {91.65, 91.88, 0.62},
       {91.78, 92.00, 0.54},
       {92.86, 93.08, 0.14},
       {95.23, 95.39, 0.11}}}},
    {"cpu100",
     {{{87.44, 89.11, 0.29},
       {91.73, 91.95, 0.27},
       {92.42, 92.64, 0.44},
       {92.50, 92.72, 0.46},
       {93.26, 93.44, 0.13},
       {95.21, 95.35, 0.14}}}},
    {"gpushare40",
     {{{84.86, 86.00, 0.36},
       {89.30, 89.56, 0.14},
       {89.76, 90.02, 0.62},
       {89.77, 90.03, 0.53},
       {91.44, 91.69, 0.21},
       {93.96, 94.15, 0.07}}}},
    {"gpuspec20",
     {{{85.90, 87.24, 0.35},
       {88.29, 89.97, 0.40},
       {89.11, 92.25, 0.61},
       {89.28, 92.94, 0.64},
       {88.46, 93.30, 0.12},
       {94.66, 94.84, 0.13}}}},
    {"multigpu20",
     {{{86.92, 88.69, 0.52},
       {91.85, 92.06, 0.32},
       {93.34, 93.56, 0.61},
       {93.50, 93.71, 0.64},
       {93.73, 93.93, 0.25},
       {95.53, 95.65, 0.16}}}},
}};

constexpr const char* kNodeList = "openb_node_list_gpu_node.csv";

// Directory of the traces; nothing if there is none.
std::optional<std::filesystem::path> TraceDir() {
  const char* variable = std::getenv("TESSERA_TRACES");
  const std::filesystem::path root = variable != nullptr ? variable : TESSERA_TRACES_BESIDE_SOURCE;
  for (const char* below : {"", "openb", "csv", "cluster-trace-gpu-v2023/csv"}) {
    if (std::filesystem::exists(root / below / kNodeList)) return root / below;
  }
  return std::nullopt;
}

constexpr const char* kNoTraces =
    "no openb traces: clone github.com/alibaba/clusterdata and set TESSERA_TRACES to its directory "
    "cluster-trace-gpu-v2023/csv";

// Results of the policies on a trace for seeds from 42 on; nothing without the traces.
std::optional<Result<Study>> StudyOf(std::string_view trace, std::vector<std::string> policies,
                                     uint64_t seeds = kSeeds,
                                     ShareResource share_resource = ShareResource::kCompute,
                                     int times_without_gpus = 1) {
  const auto dir = TraceDir();
  if (!dir.has_value()) return std::nullopt;
  const auto nodes = ReadNodes(*dir / kNodeList);
  if (!nodes.ok()) return nodes.status();
  auto list = ReadPods(*dir / fmt::format("openb_pod_list_{}.csv", trace));
  if (!list.ok()) return list.status();
  for (size_t i = 0, all = list->pods.size(); i < all; ++i) {
    TracePod pod = list->pods[i];
    if (pod.gpus > 0) continue;
    for (int copy = 1; copy < times_without_gpus; ++copy) {
      pod.name += "-again";
      list->pods.push_back(pod);
    }
  }
  StudyOptions options{
      .policies = std::move(policies),
      .share_resource = share_resource,
      .fragmentation = false,
      .threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  for (uint64_t n = 0; n < seeds; ++n) options.seeds.push_back(42 + n);
  return RunStudy(*nodes, list->pods, options, SystemClock());
}

// 0.3 percent of all GPUs, or three standard errors of the difference between the published mean
// and ours if that is more: the seeds of some policies differ by half a percent.
double Tolerance(const PublishedFigure& figure) {
  const double variance = figure.deviation * figure.deviation;
  return std::max(0.3, 3 * std::sqrt(variance / 10 + variance / static_cast<double>(kSeeds)));
}

class PublishedTest : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedTest, AllocationMatchesThePublishedFigure) {
  const auto study = StudyOf(GetParam().trace, {kNames.begin(), kNames.end()});
  if (!study.has_value()) GTEST_SKIP() << kNoTraces;
  ASSERT_TRUE(study->ok()) << study->status().ToString();
  for (size_t policy = 0; policy < kPolicies; ++policy) {
    const PublishedFigure& figure = GetParam().policies[policy];
    const std::vector<LoadPoint>& points = (*study)->means[policy].points;
    EXPECT_NEAR(points[100].allocation, figure.at_100, Tolerance(figure)) << kNames[policy];
    EXPECT_NEAR(points[130].allocation, figure.at_130, Tolerance(figure)) << kNames[policy];
  }
}

INSTANTIATE_TEST_SUITE_P(Openb, PublishedTest, ::testing::ValuesIn(kPublished),
                         [](const auto& trace) { return std::string(trace.param.trace); });

// The least gain of the default policy over FGD on equal seeds, in percent of all GPUs, at loads
// 80, 90, 100 and 130: 0.05 less than was measured when the policy was chosen.
struct PolicyGain {
  const char* trace;
  std::array<double, 4> least;
};
constexpr std::array<PolicyGain, 5> kGains = {{{"default", {-0.05, -0.05, 0.80, 0.70}},
                                               {"cpu100", {-0.05, -0.05, 0.88, 0.81}},
                                               {"gpushare40", {-0.05, -0.05, 0.65, 0.60}},
                                               {"gpuspec20", {2.67, 3.10, 1.28, 1.16}},
                                               {"multigpu20", {-0.05, -0.05, 0.96, 0.89}}}};

class DefaultPolicyTest : public ::testing::TestWithParam<PolicyGain> {};

TEST_P(DefaultPolicyTest, AllocatesMoreThanFgd) {
  const auto study = StudyOf(GetParam().trace, {"Tessera", "FGD"});
  if (!study.has_value()) GTEST_SKIP() << kNoTraces;
  ASSERT_TRUE(study->ok()) << study->status().ToString();
  constexpr std::array kLoads = {80, 90, 100, 130};
  for (size_t n = 0; n < kLoads.size(); ++n) {
    const double ours = (*study)->means[0].points[kLoads[n]].allocation;
    const double theirs = (*study)->means[1].points[kLoads[n]].allocation;
    // Fewer seeds, as used with sanitizers, have a larger error.
    const double tolerance = kSeeds < 10 ? 0.3 : 0;
    EXPECT_GE(ours - theirs, GetParam().least[n] - tolerance) << kLoads[n];
  }
}

// If shares request device memory instead of compute, the default policy gains as much over FGD.
class DeviceMemoryTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceMemoryTest, GainsAsMuchForMemorySharesAsForComputeShares) {
  std::array<double, 2> gains{};
  for (const ShareResource share_resource : {ShareResource::kCompute, ShareResource::kMemory}) {
    const auto study = StudyOf(GetParam(), {"Tessera", "FGD"}, kFewSeeds, share_resource);
    if (!study.has_value()) GTEST_SKIP() << kNoTraces;
    ASSERT_TRUE(study->ok()) << study->status().ToString();
    const auto at_end = [&](size_t n) { return (*study)->means[n].points[130].allocation; };
    gains[static_cast<size_t>(share_resource)] = at_end(0) - at_end(1);
  }
  EXPECT_NEAR(gains[0], gains[1], 0.2);
}

// With four times as many pods without GPUs, CPU runs out before GPUs do.
TEST(CpuIsShortTest, AllocatesGpusThatFgdLeavesWithoutCpu) {
  const auto study = StudyOf("default", {"Tessera", "FGD"}, kFewSeeds, ShareResource::kCompute, 4);
  if (!study.has_value()) GTEST_SKIP() << kNoTraces;
  ASSERT_TRUE(study->ok()) << study->status().ToString();
  const auto gain = [&](size_t load) {
    return (*study)->means[0].points[load].allocation - (*study)->means[1].points[load].allocation;
  };
  EXPECT_GE(gain(100), 5);
  EXPECT_GE(gain(130), 9);
}

INSTANTIATE_TEST_SUITE_P(Openb, DeviceMemoryTest, ::testing::Values("default", "gpushare40"),
                         [](const auto& trace) { return std::string(trace.param); });

INSTANTIATE_TEST_SUITE_P(Openb, DefaultPolicyTest, ::testing::ValuesIn(kGains),
                         [](const auto& trace) { return std::string(trace.param.trace); });

}  // namespace
}  // namespace tessera::replay
