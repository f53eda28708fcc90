// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/shared_pieces.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/limiter/region/memory_budget.h"
#include "src/limiter/region/slots.h"

namespace tessera::limiter {
namespace {

constexpr uint64_t kPiece = 100;

// The processes of a container. Each has a slot of one file.
class SharedPiecesTest : public ::testing::Test {
 protected:
  struct Member {
    SharedPieces pieces;
    MemoryBudget budget;
    void Join(uint64_t id) { pieces.Join(id, 0, kPiece, kPiece); }
    void Leave(uint64_t id) {
      pieces.Leave(id);
      budget.Release(0, kPiece);
    }
  };

  SharedPiecesTest() : members_(kMaxHolders + 2) {
    EXPECT_EQ(MakeUsage(path_.c_str()), 0);
    EXPECT_EQ(MapUsage(path_.c_str(), &usage_), 0);
    usage_->slots_end = uint32_t(members_.size());
    limits_->gpu_count = 1;
    for (uint32_t slot = 0; slot < members_.size(); ++slot) {
      members_[slot].pieces.Open(path_.c_str(), usage_, slot);
      members_[slot].budget.Open(limits_.get(), usage_, slot, nullptr);
    }
  }
  ~SharedPiecesTest() override { ::munmap(usage_, sizeof(Usage)); }
  uint64_t Held() { return members_[0].budget.HeldBytes(0); }

  TempDir dir_;
  const std::string path_ = dir_.path() + "/usage";
  Usage* usage_ = nullptr;
  std::unique_ptr<Limits> limits_{new Limits()};
  std::vector<Member> members_;
};

TEST_F(SharedPiecesTest, APieceCountsOnceForAllItsHolders) {
  members_[0].Join(7);
  EXPECT_FALSE(members_[0].pieces.HasOtherHolders(7));
  EXPECT_TRUE(members_[1].pieces.HasOtherHolders(7));
  members_[1].Join(7);
  members_[2].Join(7);
  members_[2].Join(8);
  EXPECT_EQ(Held(), 2 * kPiece);
  members_[0].Leave(7);
  EXPECT_EQ(Held(), 2 * kPiece);
  members_[1].Leave(7);
  members_[2].Leave(7);
  EXPECT_EQ(Held(), kPiece);
  EXPECT_FALSE(members_[0].pieces.HasOtherHolders(7));
}

TEST_F(SharedPiecesTest, HoldersBeyondTheSizeOfTheTableAreCountedInAddition) {
  for (Member& member : members_) member.Join(7);
  EXPECT_EQ(Held(), 3 * kPiece) << "two holders are not in the table";
  for (Member& member : members_) member.Leave(7);
  EXPECT_EQ(Held(), 0u);
  for (uint64_t id = 1; id <= kMaxPieces + 1; ++id) {
    members_[0].Join(id);
    members_[1].Join(id);
  }
  EXPECT_EQ(Held(), (kMaxPieces + 2) * kPiece);
  for (uint64_t id = 1; id <= kMaxPieces + 1; ++id) {
    members_[0].Leave(id);
    members_[1].Leave(id);
  }
  EXPECT_EQ(Held(), 0u);
  members_[0].Join(5000);
  members_[1].Join(5000);
  EXPECT_EQ(Held(), kPiece) << "free entries are reused";
}

TEST_F(SharedPiecesTest, APieceOfAnotherSizeWithTheSameIdIsAnotherPiece) {
  members_[0].Join(7);
  members_[1].pieces.Join(7, 0, 2 * kPiece, 2 * kPiece);
  EXPECT_EQ(Held(), 3 * kPiece);
}

TEST_F(SharedPiecesTest, ADeadProcessLeavesAllPieces) {
  for (const uint64_t id : {7, 8}) {
    members_[0].Join(id);
    members_[1].Join(id);
  }
  LeaveAllPieces(usage_, 1);
  EXPECT_EQ(Held(), 4 * kPiece) << "the caller clears the slot afterwards";
  usage_->gpus[0].held[1] = 0;
  EXPECT_EQ(Held(), 2 * kPiece);
  EXPECT_FALSE(members_[0].pieces.HasOtherHolders(7));
}

// One process holds the piece all the time, so the device holds its bytes at every instant.
TEST_F(SharedPiecesTest, TheSumIsNeverTooSmallWhileAProcessJoinsAndLeaves) {
  members_[0].Join(7);
  std::atomic<bool> runs{true};
  std::thread other([&] {
    for (int round = 0; round < 50'000; ++round) {
      members_[1].Join(7);
      members_[1].Leave(7);
    }
    runs = false;
  });
  uint64_t least = UINT64_MAX;
  while (runs) least = std::min(least, Held());
  other.join();
  EXPECT_GE(least, kPiece);
  EXPECT_EQ(Held(), kPiece);
}

TEST_F(SharedPiecesTest, ProcessesJoinAndLeaveConcurrently) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([this, i] {
      for (int round = 0; round < 200; ++round) {
        members_[i].Join(7);
        members_[i].Leave(7);
      }
      members_[i].Join(7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Held(), kPiece);
}

}  // namespace
}  // namespace tessera::limiter
