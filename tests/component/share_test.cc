// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/component/share_drill.h"

namespace tessera::testing {
namespace {

TEST(ShareDrillTest, NoContainerHasAnotherGpuThanAssigned) {
  const DrillResult result = RunShareDrill({.at_once = 4, .starts = 600});
  EXPECT_GE(result.starts, 600);
  EXPECT_GT(result.remade, 100);
  EXPECT_EQ(result.wrong, 0);
  EXPECT_EQ(result.refused, 0) << result.first_refusal;
}

TEST(ShareDrillTest, WithBindingAllocateNoContainerStartsWithAnotherGpuThanAssigned) {
  const DrillResult result =
      RunShareDrill({.binding = agent::BindingMode::kAllocate, .at_once = 4, .starts = 600});
  EXPECT_GT(result.remade, 100);
  EXPECT_EQ(result.wrong, 0);
  EXPECT_EQ(result.refused, 0) << result.first_refusal;
}

TEST(ShareDrillTest, WithBindingAllocateAContainerThatWasMistakenForAnotherDoesNotStart) {
  const DrillResult result = RunShareDrill({.binding = agent::BindingMode::kAllocate,
                                            .pod_resources_fails = true,
                                            .at_once = 4,
                                            .starts = 600});
  EXPECT_GT(result.remade, 100);
  EXPECT_EQ(result.wrong, 0);
  EXPECT_GT(result.refused, 0) << "the order was shuffled";
  EXPECT_LT(result.refused, result.starts);
}

}  // namespace
}  // namespace tessera::testing
