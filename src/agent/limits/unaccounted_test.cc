// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/unaccounted.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kMiB = 1 << 20;

class UnaccountedTest : public ::testing::Test {
 protected:
  // Adds the sample of the next second, in MiB, and returns the unaccounted memory.
  int64_t Sample(int64_t reported, int64_t held, int processes = 0) {
    now_ += 1s;
    memory_.Add(now_,
                {Bytes(reported * kMiB), processes, Bytes(held * kMiB), Bytes(limit_ * kMiB)});
    return memory_.Get(now_).count() / kMiB;
  }
  void Samples(int count, int64_t reported, int64_t held) {
    for (int i = 0; i < count; ++i) Sample(reported, held);
  }

  MonotonicTime now_{};
  int64_t limit_ = 100'000;
  UnaccountedMemory memory_;
};

TEST_F(UnaccountedTest, CountsMemoryThatStaysForAWholeWindow) {
  Samples(4, 1000, 400);
  EXPECT_EQ(Sample(1000, 400), 600);
  EXPECT_EQ(Sample(1200, 400), 600) << "a rise must last";
  Samples(3, 1200, 400);
  EXPECT_EQ(Sample(1200, 400), 800);
}

TEST_F(UnaccountedTest, TheMemoryAllowedForContextsIsAtMostTheShare) {
  limit_ = 2048;
  for (int i = 0; i < 4; ++i) Sample(40'000, 1000, 100);
  EXPECT_EQ(Sample(40'000, 1000, 100), 40'000 - 2048 - 1000);
  for (int i = 0; i < 5; ++i) Sample(1200, 0, 3);
  EXPECT_EQ(Sample(1600, 64, 3), 0) << "3 contexts of 512 MiB";
  limit_ = 256;
  for (int i = 0; i < 5; ++i) Sample(1280, 128, 4);
  EXPECT_EQ(Sample(1280, 128, 4), 128) << "1 GiB for contexts, however small the share is";
}

TEST_F(UnaccountedTest, UnaccountedMemoryThatIsFreedIsSubtractedAtOnce) {
  Samples(5, 1000, 400);
  EXPECT_EQ(Sample(700, 400), 300);
  EXPECT_EQ(Sample(0, 0), 0);
}

TEST_F(UnaccountedTest, MemoryThatMovesBetweenTwoReadingsIsNotCounted) {
  Samples(5, 1000, 1000);
  EXPECT_EQ(Sample(1000, 0), 0) << "freed after NVML has looked";
  EXPECT_EQ(Sample(0, 0), 0);
  EXPECT_EQ(Sample(5000, 0), 0) << "a process that is ending";
  EXPECT_EQ(Sample(0, 0), 0);
}

TEST_F(UnaccountedTest, ContextsAreNotCounted) {
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Sample(1400, 400, 2), 0);
  for (int i = 0; i < 4; ++i) Sample(2000, 400, 2);
  EXPECT_EQ(Sample(2000, 400, 2), 2000 - 2 * 512 - 400);
}

TEST_F(UnaccountedTest, UnaccountedMemoryExpiresIfTheDriverDoesNotAnswer) {
  Samples(5, 1000, 400);
  EXPECT_EQ(memory_.Get(now_ + 2s), Bytes(600 * kMiB));
  EXPECT_EQ(memory_.Get(now_ + 20s), Bytes(0));
}

TEST_F(UnaccountedTest, ARestartedAgentResumesTheWrittenValue) {
  memory_.Resume(Bytes(600 * kMiB));
  EXPECT_EQ(Sample(1100, 400), 600);
  EXPECT_EQ(Sample(900, 400), 500);
  EXPECT_EQ(Sample(1100, 400), 500);
  Samples(4, 1100, 400);
  EXPECT_EQ(Sample(1100, 400), 700) << "the resumed value is replaced";
  now_ += 60s;
  EXPECT_EQ(Sample(1100, 400), 0) << "the earlier samples are too old";
}

}  // namespace
}  // namespace tessera::agent
