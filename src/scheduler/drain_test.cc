// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/drain.h"

#include <gtest/gtest.h>

#include <optional>

namespace tessera::scheduler {
namespace {

using namespace std::chrono_literals;

class DrainTest : public ::testing::Test {
 protected:
  void Start() {
    Drain(
        runner_, 5s, [this] { return remaining_; },
        [this](size_t remaining) { reported_ = remaining; });
  }
  FakeTaskRunner runner_;
  size_t remaining_ = 2;
  std::optional<size_t> reported_;
};

TEST_F(DrainTest, EndsAtOnceIfNothingRemains) {
  remaining_ = 0;
  Start();
  EXPECT_EQ(reported_, std::nullopt);  // not from inside the call
  runner_.RunUntilIdle();
  EXPECT_EQ(reported_, 0u);
}

TEST_F(DrainTest, EndsOnceNothingRemains) {
  Start();
  runner_.AdvanceTimeAndRun(3s);
  EXPECT_EQ(reported_, std::nullopt);
  remaining_ = 0;
  runner_.AdvanceTimeAndRun(100ms);
  EXPECT_EQ(reported_, 0u);
}

TEST_F(DrainTest, GivesUpAfterTheLimitWithTheRemainingCount) {
  Start();
  runner_.AdvanceTimeAndRun(4900ms);
  EXPECT_EQ(reported_, std::nullopt);
  runner_.AdvanceTimeAndRun(100ms);
  EXPECT_EQ(reported_, 2u);
}

}  // namespace
}  // namespace tessera::scheduler
