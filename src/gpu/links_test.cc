// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/gpu_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::gpu {
namespace {

using device::PcieLevel;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LinksTest : public ::testing::Test {
 protected:
  LinksTest() {
    a_ = {.uuid = "a", .index = 0, .pci_bus_id = "0000:01:00.0"};
    b_ = {.uuid = "b", .index = 1, .pci_bus_id = "0000:02:00.0"};
    from_a_.levels["b"] = PcieLevel::kSystem;
    from_b_.levels["a"] = PcieLevel::kSystem;
  }
  device::Link Merge() {
    notes_.clear();
    return MergeLinks({{&a_, &from_a_}, {&b_, &from_b_}}, &notes_).At(0, 1);
  }

  device::Gpu a_, b_;
  LinkReport from_a_, from_b_;
  std::vector<std::string> notes_;
};

TEST_F(LinksTest, DirectLinksAreCountedWhenBothEndsAgree) {
  from_a_.nvlinks["0000:02:00.0"] = 12;
  from_b_.nvlinks["0000:01:00.0"] = 12;
  EXPECT_EQ(Merge(), (device::Link{PcieLevel::kSystem, 12, false}));
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(LinksTest, LinksThatDifferByDirectionGetTheSmallerCountAndANote) {
  from_a_.nvlinks["0000:02:00.0"] = 12;
  from_b_.nvlinks["0000:01:00.0"] = 11;
  EXPECT_EQ(Merge().nvlinks, 11);
  EXPECT_THAT(notes_, ElementsAre("GPU 0 reports 12 NVLinks to GPU 1, which reports 11 back"));
  from_b_.nvlinks.clear();
  EXPECT_EQ(Merge(), (device::Link{PcieLevel::kSystem, 0, false}));
}

TEST_F(LinksTest, ThroughNvSwitchAPairHasTheSmallerNumberOfLinks) {
  from_a_.switch_links = 18;
  from_b_.switch_links = 16;
  EXPECT_EQ(Merge(), (device::Link{PcieLevel::kSystem, 16, true}));
  from_b_.switch_links = 0;
  EXPECT_EQ(Merge(), (device::Link{PcieLevel::kSystem, 0, false}));
}

TEST_F(LinksTest, OneOfTheTwoGpusIsEnoughToKnowThePcieLevel) {
  from_b_.levels.clear();
  EXPECT_EQ(Merge().pcie, PcieLevel::kSystem);
  from_a_.levels.clear();
  EXPECT_FALSE(Merge().known());
}

TEST_F(LinksTest, TheLinksOfAGpuWithoutAnswerAreUnknown) {
  from_a_ = {};
  from_a_.problem = "nvmlDeviceGetNvLinkState: unknown error";
  from_b_.levels.clear();
  EXPECT_FALSE(Merge().known());
  EXPECT_THAT(notes_, ElementsAre("some links of GPU 0 are unknown: "
                                  "nvmlDeviceGetNvLinkState: unknown error"));
  EXPECT_FALSE(MergeLinks({{&a_, nullptr}, {&b_, nullptr}}, &notes_).At(0, 1).known());
}

}  // namespace
}  // namespace tessera::gpu
