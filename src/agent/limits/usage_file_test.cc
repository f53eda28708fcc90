// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/usage_file.h"

#include <gtest/gtest.h>

#include "src/agent/limits/testing/usage_test_file.h"

namespace tessera::agent {
namespace {

class UsageFileTest : public ::testing::Test {
 protected:
  UsageReading Read(size_t gpu = 0) {
    const auto read = ReadUsage(file_.fd(), gpu + 1);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    return read.ok() ? read->at(gpu) : UsageReading();
  }

  TempDir dir_;
  UsageTestFile file_{dir_.path() + "/usage"};
};

TEST_F(UsageFileTest, SumsTheMemoryOfAContainersProcesses) {
  file_.Hold(0, 100);
  file_.Hold(2, 30);
  file_.Hold(2, 7, 1);
  file_.usage().gpus[0].peak = 500;
  file_.Refuse(900);
  file_.Refuse(800);
  EXPECT_EQ(Read(), (UsageReading{Bytes(130), Bytes(500), 2, Bytes(800), 2}));
  EXPECT_EQ(Read(1).held, Bytes(7));
}

TEST_F(UsageFileTest, MemoryOfADeadProcessDoesNotCount) {
  file_.Hold(0, 100);
  file_.Hold(1, 30);
  file_.End(0);
  EXPECT_EQ(Read().held, Bytes(30));
}

TEST_F(UsageFileTest, APieceThatSeveralProcessesShareIsCountedOnce) {
  for (uint32_t slot = 0; slot < 3; ++slot) file_.Hold(slot, 100 + slot);
  limiter::SharedPiece& piece = file_.usage().pieces[1];
  file_.usage().pieces_used = 2;
  piece.bytes = 100;
  for (uint16_t slot = 0; slot < 3; ++slot) piece.holders[slot] = slot + 1;
  EXPECT_EQ(Read().held, Bytes(103));
  file_.End(1);
  EXPECT_EQ(Read().held, Bytes(102));
  piece.gpu = 1;
  EXPECT_EQ(Read().held, Bytes(202));
}

TEST_F(UsageFileTest, ForgedPiecesDoNotMakeTheSumUnderflow) {
  file_.Hold(0, 100);
  file_.Hold(1, 100);
  file_.usage().pieces_used = UINT32_MAX;
  for (limiter::SharedPiece& piece : file_.usage().pieces) {
    piece.bytes = UINT64_MAX;
    piece.holders[0] = 1;
    piece.holders[1] = 2;
    piece.holders[2] = UINT16_MAX;
  }
  EXPECT_EQ(Read().held, Bytes(0));
}

TEST_F(UsageFileTest, PiecesWithManyHoldersDoNotMakeTheSumOverflow) {
  constexpr uint16_t kSlots = 12;
  for (uint16_t slot = 0; slot < kSlots; ++slot) file_.Hold(slot, 100);
  file_.usage().pieces_used = limiter::kMaxPieces;
  for (limiter::SharedPiece& piece : file_.usage().pieces) {
    piece.bytes = UINT64_MAX;
    for (uint16_t slot = 0; slot < kSlots; ++slot) piece.holders[slot] = slot + 1;
  }
  EXPECT_EQ(Read().held, Bytes(0));
}

TEST_F(UsageFileTest, ImpossiblyLargeNumbersDoNotMakeTheSumOverflow) {
  for (uint32_t slot = 0; slot < 20; ++slot) file_.Hold(slot, UINT64_MAX);
  file_.usage().slots_end = UINT32_MAX;
  file_.usage().gpus[0].peak = UINT64_MAX;
  EXPECT_EQ(Read().held, Bytes(20ll << 50));
  EXPECT_EQ(Read().peak, Bytes(1ll << 50));
}

TEST_F(UsageFileTest, ATruncatedFileIsAnError) {
  file_.Hold(0, 100);
  for (const off_t size : {off_t{70000}, off_t{64}, off_t{10}, off_t{0}}) {
    ASSERT_EQ(::ftruncate(file_.fd(), size), 0);
    const auto read = ReadUsage(file_.fd(), 1);
    EXPECT_EQ(read.status().code(), Code::kFailedPrecondition) << size;
  }
}

// After a downgrade of the agent, the limiter of a running container is newer.
TEST_F(UsageFileTest, ReadsANewerCompatibleVersion) {
  file_.Hold(0, 100);
  file_.usage().header.version = limiter::kVersion + 1;
  file_.usage().header.oldest_reader = limiter::kVersion;
  const auto read = ReadUsage(file_.fd(), 1);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->front().held, Bytes(100));
}

TEST_F(UsageFileTest, AVersionThatExcludesThisAgentIsNotRead) {
  file_.usage().header.version = limiter::kVersion + 1;
  file_.usage().header.oldest_reader = limiter::kVersion + 1;
  EXPECT_EQ(ReadUsage(file_.fd(), 1).status().code(), Code::kFailedPrecondition);
  file_.usage().header.version = limiter::kOldestFile - 1;
  EXPECT_EQ(ReadUsage(file_.fd(), 1).status().code(), Code::kFailedPrecondition);
}

TEST_F(UsageFileTest, ReadsPidsOfRunningProcessesOnly) {
  for (const uint32_t slot : {0u, 1u, 2u}) {
    file_.Hold(slot, 0);
    file_.usage().pids[slot] = static_cast<int32_t>(10 + slot);
  }
  file_.usage().pids[0] = 0;
  file_.End(1);
  EXPECT_EQ(ReadPids(file_.fd()).value(), std::vector<int>{12});
  ASSERT_EQ(::ftruncate(file_.fd(), 70), 0);
  EXPECT_EQ(ReadPids(file_.fd()).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tessera::agent
