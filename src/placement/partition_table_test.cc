// SPDX-License-Identifier: Apache-2.0
#include "src/placement/partition_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "src/placement/testing/reference_choice.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

PartitionTable TableOf(const Topology& topology) {
  return PartitionTable(static_cast<int>(topology.ids.size()),
                        [&](int a, int b) { return device::ScoreOf(topology.links.At(a, b)); });
}

TEST(PartitionTableTest, ScoresAndTotalsEqualBruteForceForAllSetsOfUpToTen) {
  for (const int count : {0, 1, 2, 3, 5, 8, 10}) {
    const Topology topology = testing::RandomLinks(count, count);
    const PartitionTable table = TableOf(topology);
    testing::ReferenceChoice reference(topology, testing::Search::kMemo);
    for (uint32_t set = 0; set < 1u << count; ++set) {
      EXPECT_EQ(table.ScoreOf(set) * device::kLinkScoreUnit, reference.Score(set));
      for (int group = 1; group <= std::max(count, 8); ++group) {
        const bool future = group == 2 || group == 4 || group == 8;
        if (std::popcount(set) > (future ? count - 1 : count - group)) continue;
        EXPECT_EQ(table.BestTotal(group, set) * device::kLinkScoreUnit,
                  reference.BestTotal(set, group))
            << "set " << set << " group " << group;
      }
    }
  }
}

TEST(PartitionTableTest, ListsEachSetOnceUnderItsSize) {
  const PartitionTable table = TableOf(testing::UnknownLinks(6));
  size_t total = 0;
  for (int size = 0; size <= 6; ++size) {
    for (const Mask set : table.SetsOf(size)) EXPECT_EQ(std::popcount(set), size);
    total += table.SetsOf(size).size();
  }
  EXPECT_EQ(total, 64u);
}

}  // namespace
}  // namespace tessera::placement
