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
        runner_, 5s, [this] { return left_; }, [this](size_t left) { said_ = left; });
  }
  FakeTaskRunner runner_;
  size_t left_ = 2;
  std::optional<size_t> said_;
};

TEST_F(DrainTest, EndsAtOnceWhereNothingIsLeft) {
  left_ = 0;
  Start();
  EXPECT_EQ(said_, std::nullopt);  // not from inside the call
  runner_.RunUntilIdle();
  EXPECT_EQ(said_, 0u);
}

TEST_F(DrainTest, EndsWithTheLast) {
  Start();
  runner_.AdvanceTimeAndRun(3s);
  EXPECT_EQ(said_, std::nullopt);
  left_ = 0;
  runner_.AdvanceTimeAndRun(100ms);
  EXPECT_EQ(said_, 0u);
}

TEST_F(DrainTest, GivesUpAfterTheLimitWithTheRemainingCount) {
  Start();
  runner_.AdvanceTimeAndRun(4900ms);
  EXPECT_EQ(said_, std::nullopt);
  runner_.AdvanceTimeAndRun(100ms);
  EXPECT_EQ(said_, 2u);
}

}  // namespace
}  // namespace tessera::scheduler
