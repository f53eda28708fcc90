// SPDX-License-Identifier: Apache-2.0
#include "src/placement/chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "src/placement/testing/reference_choice.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> IdsOf(const Topology& topology, uint32_t mask) {
  std::vector<std::string> ids;
  for (; mask != 0; mask &= mask - 1) ids.push_back(topology.ids[std::countr_zero(mask)]);
  return ids;
}

std::vector<int> Choose(const Chooser& chooser, uint32_t available, uint32_t must, int size) {
  const Topology& topology = chooser.topology();
  const auto ids = chooser.ChooseDevices(IdsOf(topology, available), IdsOf(topology, must), size);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  std::vector<int> positions;
  for (const std::string& id : ids.value_or({})) {
    positions.push_back(std::ranges::find(topology.ids, id) - topology.ids.begin());
  }
  return positions;
}

uint32_t MaskOf(const std::vector<int>& positions) {
  uint32_t mask = 0;
  for (const int position : positions) mask |= 1u << position;
  return mask;
}

std::vector<Topology> SampleTopologies(int count) {
  std::vector<Topology> all = {testing::RandomLinks(count, 1), testing::RandomLinks(count, 2),
                               testing::RandomLinks(count, 3), testing::UnknownLinks(count)};
  if (count % 8 != 0) return all;
  all.push_back(testing::NvLinkPairs(count));
  all.push_back(testing::NvLinkQuads(count));
  all.push_back(testing::NvSwitch(count));
  all.push_back(testing::CubeMesh(count));
  all.push_back(testing::PcieOnly(count));
  return all;
}

void ExpectEqualToReference(const Topology& topology, int trials, testing::Search search) {
  const Chooser chooser(topology);
  testing::ReferenceChoice reference(topology, search);
  const uint32_t everything = (1u << topology.ids.size()) - 1;
  std::mt19937 random(11);
  for (int i = 0; i < trials; ++i) {
    const uint32_t available = i % 4 == 0 ? everything : random() & everything;
    const uint32_t must = random() % 3 == 0 ? random() & random() & random() & available : 0;
    const int size = 1 + random() % topology.ids.size();
    EXPECT_EQ(MaskOf(Choose(chooser, available, must, size)),
              reference.Choose(available, must, size))
        << topology.ids.size() << " GPUs, available " << available << " must " << must << " size "
        << size;
  }
}

TEST(ChooserTest, EqualsBruteForceForUpToTenGpus) {
  for (int count = 1; count <= 10; ++count) {
    for (const Topology& topology : SampleTopologies(count)) {
      ExpectEqualToReference(topology, 40, testing::Search::kPlain);
    }
  }
}

TEST(ChooserTest, EqualsASlowerExactSearchOnSixteenGpus) {
  for (const Topology& topology : SampleTopologies(16)) {
    ExpectEqualToReference(topology, 4, testing::Search::kMemo);
  }
}

TEST(ChooserTest, TwoOfEightAreAnNvLinkPair) {
  const Chooser chooser(testing::NvLinkPairs(8));
  EXPECT_THAT(Choose(chooser, 0b11111111, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(Choose(chooser, 0b11011010, 0, 2), ElementsAre(6, 7));
}

TEST(ChooserTest, OneGpuIsTakenWhereItBreaksNoPair) {
  const Chooser chooser(testing::NvLinkPairs(8));
  EXPECT_THAT(Choose(chooser, 0b11111101, 0, 1), ElementsAre(0));
  EXPECT_THAT(Choose(chooser, 0b10111111, 0, 1), ElementsAre(7));
  EXPECT_THAT(Choose(chooser, 0b11001111, 0, 1), ElementsAre(6))
      << "0-3 stay whole for a request of four";
  EXPECT_THAT(Choose(chooser, 0b00110011, 0, 1), ElementsAre(0)) << "all remaining GPUs are equal";
}

TEST(ChooserTest, APairIsTakenFromTheQuadThatIsBrokenAlready) {
  const Chooser chooser(testing::NvLinkQuads(8));
  EXPECT_THAT(Choose(chooser, 0b11110011, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(Choose(chooser, 0b00111111, 0, 2), ElementsAre(4, 5));
  EXPECT_THAT(Choose(chooser, 0b11111110, 0, 1), ElementsAre(1));
}

TEST(ChooserTest, NvSwitchCountsAsNvLinks) {
  // GPUs 0-5 are on the switch; 6 and 7 are close to each other on PCIe only.
  const Topology topology = testing::MakeTopology(8, 2, [](int a, int b) -> device::Link {
    if (a < 6 && b < 6) return {device::PcieLevel::kSystem, 18, true};
    return {a == 6 ? device::PcieLevel::kSingleSwitch : device::PcieLevel::kSystem, 0, false};
  });
  EXPECT_THAT(Choose(Chooser(topology), 0xff, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(Choose(Chooser(topology), 0xff, 0, 1), ElementsAre(6));
}

TEST(ChooserTest, UnknownLinksAreDecidedByNumaNodeAndPosition) {
  const Chooser chooser(testing::UnknownLinks(8));  // NUMA node 0: 0-3, node 1: 4-7
  EXPECT_THAT(Choose(chooser, 0xff, 0, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(Choose(chooser, 0b11110011, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(Choose(chooser, 0b11111011, 0, 4), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Choose(chooser, 0b11110011, 0, 1), ElementsAre(0)) << "node 0 is broken already";
  EXPECT_THAT(Choose(Chooser(testing::MakeTopology(4, 0, [](int, int) { return device::Link(); })),
                     0b1110, 0, 2),
              ElementsAre(1, 2));
}

TEST(ChooserTest, IncludesTheRequiredGpus) {
  const Chooser chooser(testing::NvLinkPairs(8));
  EXPECT_THAT(Choose(chooser, 0xff, 0b101, 2), ElementsAre(0, 2));
  EXPECT_THAT(Choose(chooser, 0xff, 0b100, 2), ElementsAre(2, 3));
}

TEST(ChooserTest, ReturnsNothingWithoutAValidSet) {
  const Chooser chooser(testing::NvLinkPairs(8));
  EXPECT_THAT(Choose(chooser, 0xff, 0, 0), IsEmpty());
  EXPECT_THAT(Choose(chooser, 0xff, 0, -1), IsEmpty());
  EXPECT_THAT(Choose(chooser, 0b11, 0, 3), IsEmpty());
  EXPECT_THAT(Choose(chooser, 0b11, 0b100, 2), IsEmpty());
  EXPECT_THAT(Choose(chooser, 0xff, 0b111, 2), IsEmpty());
  EXPECT_THAT(Choose(chooser, 0, 0, 1), IsEmpty());
}

TEST(ChooserTest, RejectsAnUnknownId) {
  const Chooser chooser(testing::NvLinkPairs(8));
  const auto answer = chooser.ChooseDevices({"nope"}, {}, 1);
  EXPECT_EQ(answer.status().code(), Code::kNotFound);
  EXPECT_EQ(answer.status().message(), "unknown device: nope");
  EXPECT_EQ(chooser.ChooseDevices(chooser.topology().ids, {"nope"}, 1).status().code(),
            Code::kNotFound);
}

TEST(ChooserTest, OrderAndRepetitionOfIdsDoNotMatter) {
  const Chooser chooser(testing::CubeMesh(8));
  std::vector<std::string> ids = chooser.topology().ids;
  const auto answer = *chooser.ChooseDevices(ids, {}, 3);
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    ids.push_back(ids[random() % ids.size()]);
    std::ranges::shuffle(ids, random);
    EXPECT_EQ(*chooser.ChooseDevices(ids, {}, 3), answer);
  }
}

TEST(ChooserTest, NodesOfMoreThanSixteenGpusGetGoodGroups) {
  const Chooser chooser(testing::NvLinkQuads(32));
  EXPECT_THAT(Choose(chooser, 0xfffffff1, 0, 4), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Choose(chooser, 0xffffffff, 0b1000000, 2), ElementsAre(6, 7));
  EXPECT_EQ(Choose(chooser, 0xffffffff, 0, 32).size(), 32u);
  EXPECT_THAT(Choose(Chooser(testing::UnknownLinks(24)), 0xfff00f, 0, 6),
              ElementsAre(12, 13, 14, 15, 16, 17));
}

TEST(ChooserTest, ANodeWithoutGpusAnswersNothing) {
  const Chooser chooser{Topology()};
  EXPECT_THAT(*chooser.ChooseDevices({}, {}, 1), IsEmpty());
}

TEST(ChooserTest, AboveSixtyFourGpusAnImpossibleSizeReturnsNothing) {
  const Topology topology = testing::UnknownLinks(65);
  const Chooser chooser(topology);
  const std::vector<std::string> two(topology.ids.begin(), topology.ids.begin() + 2);
  for (const int size : {-1, 0, 3}) EXPECT_THAT(*chooser.ChooseDevices(two, {}, size), IsEmpty());
  EXPECT_EQ(*chooser.ChooseDevices(two, {}, 2), two);
}

}  // namespace
}  // namespace tessera::placement
