// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/wait_for_zero.h"

#include <gtest/gtest.h>

#include <optional>

namespace tessera::scheduler {
namespace {

using namespace std::chrono_literals;

class WaitForZeroTest : public ::testing::Test {
 protected:
  void Start() {
    WaitForZero(
        runner_, 5s, [this] { return remaining_; },
        [this](size_t remaining) { reported_ = remaining; });
  }
  FakeTaskRunner runner_;
  size_t remaining_ = 2;
  std::optional<size_t> reported_;
};

TEST_F(WaitForZeroTest, EndsAtOnceIfNothingRemains) {
  remaining_ = 0;
  Start();
  EXPECT_EQ(reported_, std::nullopt);  // not from inside the call
  runner_.RunUntilIdle();
  EXPECT_EQ(reported_, 0u);
}

TEST_F(WaitForZeroTest, EndsOnceNothingRemains) {
  Start();
  runner_.AdvanceTimeAndRun(3s);
  EXPECT_EQ(reported_, std::nullopt);
  remaining_ = 0;
  runner_.AdvanceTimeAndRun(100ms);
  EXPECT_EQ(reported_, 0u);
}

TEST_F(WaitForZeroTest, GivesUpAfterTheLimitWithTheRemainingCount) {
  Start();
  runner_.AdvanceTimeAndRun(4900ms);
  EXPECT_EQ(reported_, std::nullopt);
  runner_.AdvanceTimeAndRun(100ms);
  EXPECT_EQ(reported_, 2u);
}

}  // namespace
}  // namespace tessera::scheduler
