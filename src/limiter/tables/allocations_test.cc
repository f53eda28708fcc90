// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/allocations.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

#include "src/limiter/testing/exhausted_memory.h"

namespace tessera::limiter {
namespace {

void Insert(Allocations* allocations, uint64_t pointer, const Allocation& allocation) {
  Allocation replaced;
  ASSERT_NE(allocations->Insert(pointer, allocation, &replaced), Allocations::Insertion::kNoMemory);
}

TEST(AllocationsTest, AnswersLikeAMapOverRandomHistories) {
  static Allocations allocations;
  allocations.Reset();
  std::map<uint64_t, uint64_t> model;
  std::mt19937_64 random(7);
  for (int i = 0; i < 300'000; ++i) {
    // Few different pointers, so that entries collide, are replaced, and leave holes.
    const uint64_t pointer = (1 + random() % 20'000) * 512;
    Allocation removed;
    if (random() % 2 == 0) {
      Insert(&allocations, pointer, Allocation::InOwnBlocks(uint64_t(i), 0, 1));
      model[pointer] = uint64_t(i);
    } else if (const auto found = model.find(pointer); found != model.end()) {
      ASSERT_TRUE(allocations.Remove(pointer, &removed));
      EXPECT_EQ(removed.own_blocks(), found->second);
      model.erase(found);
    } else {
      EXPECT_FALSE(allocations.Remove(pointer, &removed));
    }
  }
  for (const auto& [pointer, bytes] : model) {
    Allocation removed;
    ASSERT_TRUE(allocations.Remove(pointer, &removed));
    EXPECT_EQ(removed.own_blocks(), bytes);
  }
}

TEST(AllocationsTest, RemovesAllAllocationsOfOneContextAndNoOthers) {
  static Allocations allocations;
  allocations.Reset();
  for (uint64_t i = 1; i <= 5000; ++i) {
    Insert(&allocations, i << 21, Allocation::InOwnBlocks(i, 0, 1 + i % 3));
  }
  struct Seen {
    uint64_t count = 0, wrong = 0;
  } seen;
  allocations.RemoveContext(
      2,
      [](void* argument, uint64_t pointer, const Allocation& allocation) {
        auto* all = static_cast<Seen*>(argument);
        ++all->count;
        if (allocation.context != 2 || allocation.own_blocks() != pointer >> 21) ++all->wrong;
      },
      &seen);
  EXPECT_EQ(seen.count, 1667u);
  EXPECT_EQ(seen.wrong, 0u);
  Allocation removed;
  EXPECT_FALSE(allocations.Remove(1 << 21, &removed));
  EXPECT_TRUE(allocations.Remove(2 << 21, &removed));
}

// The lock is free during `visit`. Other threads may then remove entries, which moves further ones.
TEST(AllocationsTest, RemovesAllAllocationsOfAContextWhileEntriesMove) {
  static Allocations allocations;
  struct Progress {
    std::vector<uint64_t> others;  // pointers of context 2
    uint64_t visits = 0, visit_that_removes_others = 0;
  };
  std::mt19937_64 random(7);
  for (uint64_t trial = 1; trial <= 100; ++trial) {
    allocations.Reset();
    Progress progress{.visit_that_removes_others = trial * 20};
    for (uint64_t i = 1; i <= 5000; ++i) {
      const uint64_t pointer = i << 32 | random() % (1 << 20) * 512, context = 1 + i % 2;
      Insert(&allocations, pointer, Allocation::InOwnBlocks(1, 0, context));
      if (context == 2) progress.others.push_back(pointer);
    }
    const auto visit = [](void* argument, uint64_t, const Allocation&) {
      auto* state = static_cast<Progress*>(argument);
      if (++state->visits != state->visit_that_removes_others) return;
      Allocation removed;
      for (const uint64_t other : state->others) (void)allocations.Remove(other, &removed);
    };
    allocations.RemoveContext(1, visit, &progress);
    EXPECT_EQ(progress.visits, 2500u) << "trial " << trial;
  }
}

TEST(SharedBlocksTest, ABlockIsChargedWithItsFirstAllocationAndReleasedWithItsLast) {
  static SharedBlocks blocks;
  blocks.Reset();
  EXPECT_TRUE(blocks.Join(4 << 20));
  EXPECT_FALSE(blocks.Join(4 << 20));
  EXPECT_FALSE(blocks.Leave(4 << 20));
  EXPECT_TRUE(blocks.Leave(4 << 20));
  EXPECT_TRUE(blocks.Join(4 << 20)) << "the driver may use the address again";
}

TEST(SharedBlocksTest, EveryChargeEndsAfterTheHostsMemoryWasExhausted) {
  static SharedBlocks blocks;
  blocks.Reset();
  bool charged = false;
  {
    const ExhaustedMemory exhausted;
    charged = blocks.Join(4 << 20);
  }
  EXPECT_TRUE(charged);
  EXPECT_TRUE(blocks.Join(4 << 20)) << "the table does not have the first allocation";
  EXPECT_FALSE(blocks.Join(4 << 20));
  EXPECT_FALSE(blocks.Leave(4 << 20));
  EXPECT_TRUE(blocks.Leave(4 << 20));
  EXPECT_TRUE(blocks.Leave(4 << 20)) << "two charges, two releases";
}

// Both threads call the driver to free one allocation. The driver succeeds for the thread that has
// not found the entry.
TEST(AllocationsTest, OneOfTwoConcurrentFreesEndsTheCharge) {
  static Allocations allocations;
  constexpr uint64_t kPointer = 6 << 20;
  Allocation removed, again;
  for (const bool refused_first : {true, false}) {
    allocations.Reset();
    Insert(&allocations, kPointer, Allocation::InOwnBlocks(5, 0, 1));
    ASSERT_TRUE(allocations.Remove(kPointer, &removed));
    ASSERT_FALSE(allocations.Remove(kPointer, &again));
    if (refused_first) {
      EXPECT_TRUE(allocations.Restore(kPointer, removed));
      ASSERT_TRUE(allocations.RemoveRestored(kPointer, &again)) << "the caller ends the charge";
      EXPECT_EQ(again.own_blocks(), 5u);
    } else {
      EXPECT_FALSE(allocations.RemoveRestored(kPointer, &again));
      EXPECT_FALSE(allocations.Restore(kPointer, removed)) << "the caller ends the charge";
    }
    EXPECT_FALSE(allocations.Remove(kPointer, &again));
  }
}

TEST(AllocationsTest, AnAddressThatIsReusedDuringTwoFreesKeepsItsNewCharge) {
  static Allocations allocations;
  constexpr uint64_t kPointer = 6 << 20;
  Allocation removed, again;
  for (const bool refused_first : {true, false}) {
    allocations.Reset();
    Insert(&allocations, kPointer, Allocation::InOwnBlocks(5, 0, 1));
    ASSERT_TRUE(allocations.Remove(kPointer, &removed));
    Insert(&allocations, kPointer, Allocation::InOwnBlocks(7, 0, 1));
    if (refused_first) {
      EXPECT_FALSE(allocations.Restore(kPointer, removed));
      EXPECT_FALSE(allocations.RemoveRestored(kPointer, &again));
    } else {
      EXPECT_FALSE(allocations.RemoveRestored(kPointer, &again));
      EXPECT_FALSE(allocations.Restore(kPointer, removed));
    }
    ASSERT_TRUE(allocations.Remove(kPointer, &removed));
    EXPECT_EQ(removed.own_blocks(), 7u);
    EXPECT_TRUE(allocations.Restore(kPointer, removed)) << "the driver refuses for another reason";
  }
}

TEST(AllocationsTest, InsertReturnsTheEntryThatItReplaces) {
  static Allocations allocations;
  allocations.Reset();
  Allocation replaced;
  EXPECT_EQ(allocations.Insert(512, Allocation::InOwnBlocks(5, 0, 1), &replaced),
            Allocations::Insertion::kAdded);
  EXPECT_EQ(allocations.Insert(512, Allocation::InOwnBlocks(7, 0, 1), &replaced),
            Allocations::Insertion::kReplaced);
  EXPECT_EQ(replaced.own_blocks(), 5u);
}

TEST(AllocationsTest, ThreadsDoNotLoseEachOthersEntries) {
  static Allocations allocations;
  allocations.Reset();
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (uint64_t round = 0; round < 20; ++round) {
        for (uint64_t i = 1; i <= 500; ++i)
          Insert(&allocations, (thread << 40) + (i << 21), Allocation::InOwnBlocks(i, 0, 1));
        for (uint64_t i = 1; i <= 500; ++i) {
          Allocation removed;
          if (!allocations.Remove((thread << 40) + (i << 21), &removed) ||
              removed.own_blocks() != i)
            std::abort();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tessera::limiter
