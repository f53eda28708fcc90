// SPDX-License-Identifier: Apache-2.0
#include "src/replay/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tessera::replay {
namespace {

using ::testing::ElementsAre;

TracePod MakePod(std::string name, int64_t cpu_milli, int gpus, int milli) {
  return {
      .name = std::move(name), .cpu_milli = cpu_milli, .gpus = gpus, .per_gpu = MilliGpu(milli)};
}

std::vector<TracePod> ManyPods() {
  std::vector<TracePod> pods;
  for (int i = 0; i < 100; ++i) pods.push_back(MakePod(fmt::format("p{:03}", i), 1000, 1, 500));
  return pods;
}

int64_t RequestedMilli(const std::vector<TracePod>& pods, const std::vector<uint32_t>& order) {
  int64_t milli = 0;
  for (const uint32_t i : order) milli += pods[i].milli();
  return milli;
}

std::vector<uint32_t> ArrivalsOf(const std::vector<TracePod>& pods, int64_t capacity, int load,
                                 uint64_t seed) {
  Random random(seed);
  return Arrivals(pods, capacity, load, random);
}

TEST(ArrivalsTest, LeavesOutRandomPodsIfTheLoadIsTooHigh) {
  const auto pods = ManyPods();
  const auto order = ArrivalsOf(pods, 40'000, 100, 1);
  EXPECT_EQ(RequestedMilli(pods, order), 40'000);
  EXPECT_EQ(std::set<uint32_t>(order.begin(), order.end()).size(), 80u);
}

TEST(ArrivalsTest, AppendsCopiesOfRandomPodsIfTheLoadIsTooLow) {
  const auto pods = ManyPods();
  const auto order = ArrivalsOf(pods, 100'000, 130, 1);
  EXPECT_EQ(RequestedMilli(pods, order), 130'000);
  // The original pods come first, each once.
  EXPECT_EQ(std::set<uint32_t>(order.begin(), order.begin() + 100).size(), 100u);
}

TEST(ArrivalsTest, StopsBeforeTheLoadIsExceeded) {
  const auto pods = ManyPods();
  EXPECT_EQ(RequestedMilli(pods, ArrivalsOf(pods, 60'300, 100, 1)), 60'000);
}

TEST(ArrivalsTest, DependsOnTheSeedAndNotOnTheOrderOfTheFile) {
  auto pods = ManyPods();
  const auto names = [&](uint64_t seed) {
    std::vector<std::string> names;
    for (const uint32_t i : ArrivalsOf(pods, 100'000, 130, seed)) names.push_back(pods[i].name);
    return names;
  };
  const auto first = names(42);
  EXPECT_EQ(names(42), first);
  EXPECT_NE(names(43), first);
  std::reverse(pods.begin(), pods.end());
  EXPECT_EQ(names(42), first);
}

TEST(ArrivalsTest, LeavesAListWithoutGpusUnchanged) {
  const std::vector<TracePod> pods = {MakePod("a", 1, 0, 0), MakePod("b", 1, 0, 0)};
  EXPECT_EQ(ArrivalsOf(pods, 100'000, 130, 1).size(), 2u);
}

TEST(TypicalPodsTest, AreTheMostFrequentPodsUntilTheShareIsReached) {
  std::vector<TracePod> pods = ManyPods();                                   // 100 × half a GPU
  for (int i = 0; i < 60; ++i) pods.push_back(MakePod("q", 2000, 2, 1000));  // 60 × two GPUs
  for (int i = 0; i < 5; ++i) pods.push_back(MakePod("r", 3000 + i, 0, 0));
  const auto typical = TypicalPods(pods, 0.95);
  ASSERT_EQ(typical.size(), 2u);
  EXPECT_EQ(typical[0].count, 100u);
  EXPECT_EQ(typical[1].pod.gpus, 2);
  EXPECT_EQ(TypicalPods(pods, 1).size(), 7u);
}

TEST(LoadTest, AddsNodesInAnOrderThatTheSeedDecides) {
  std::vector<TraceNode> nodes;
  for (int i = 0; i < 50; ++i) nodes.push_back({.name = fmt::format("n{}", i), .gpus = 1});
  const auto first_node = [&](uint64_t seed) {
    Random random(seed);
    return LoadTrace(nodes, {}, ShareResource::kCompute, random)->cluster->spec(0).name;
  };
  std::set<std::string> first;
  for (uint64_t seed = 0; seed < 20; ++seed) first.insert(first_node(seed));
  EXPECT_GT(first.size(), 10u);
  EXPECT_EQ(first_node(3), first_node(3));
}

TEST(LoadTest, OmitsUnknownModelsUnlessAllAreUnknown) {
  const std::vector<TraceNode> nodes = {{.name = "n", .cpu_milli = 10, .gpus = 1, .model = "T4"}};
  std::vector<TracePod> pods(2, MakePod("p", 1, 1, 1000));
  pods[0].models = {"A10", "T4"};
  pods[1].models = {"A10"};
  Random random(1);
  const auto loaded = LoadTrace(nodes, pods, ShareResource::kCompute, random);
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(loaded->demands[0]->AllowsModel(loaded->cluster->FindModel("T4")));
  EXPECT_FALSE(loaded->demands[1]->AllowsModel(loaded->cluster->FindModel("T4")));
  const UnknownModels unknown = FindUnknownModels(nodes, pods);
  EXPECT_EQ(unknown.pods, 1u);
  EXPECT_THAT(unknown.models, ElementsAre("A10"));
}

TEST(UnknownModelsTest, ShowsSomeNamesWithoutTerminalControlCodes) {
  EXPECT_EQ((UnknownModels{.pods = 1, .models = {"A\x1b[2J", "B"}}.Text()),
            "\"A\\u001b[2J\", \"B\"");
  const std::string many =
      UnknownModels{.pods = 1, .models = std::vector<std::string>(12, "M")}.Text();
  EXPECT_TRUE(many.ends_with("\"M\" and 2 more")) << many;
}

}  // namespace
}  // namespace tessera::replay
