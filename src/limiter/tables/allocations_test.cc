// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/allocations.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

namespace tessera::limiter {
namespace {

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
      ASSERT_TRUE(allocations.Insert(pointer, {.blocks = uint64_t(i)}));
      model[pointer] = uint64_t(i);
    } else if (const auto found = model.find(pointer); found != model.end()) {
      ASSERT_TRUE(allocations.Remove(pointer, &removed));
      EXPECT_EQ(removed.blocks, found->second);
      model.erase(found);
    } else {
      EXPECT_FALSE(allocations.Remove(pointer, &removed));
    }
  }
  for (const auto& [pointer, bytes] : model) {
    Allocation removed;
    ASSERT_TRUE(allocations.Remove(pointer, &removed));
    EXPECT_EQ(removed.blocks, bytes);
  }
}

TEST(AllocationsTest, RemovesAllAllocationsOfOneContextAndNoOthers) {
  static Allocations allocations;
  allocations.Reset();
  for (uint64_t i = 1; i <= 5000; ++i) {
    ASSERT_TRUE(allocations.Insert(i << 21, {.blocks = i, .context = 1 + i % 3}));
  }
  struct Seen {
    uint64_t count = 0, wrong = 0;
  } seen;
  allocations.RemoveContext(
      2,
      [](void* argument, uint64_t pointer, const Allocation& allocation) {
        auto* all = static_cast<Seen*>(argument);
        ++all->count;
        if (allocation.context != 2 || allocation.blocks != pointer >> 21) ++all->wrong;
      },
      &seen);
  EXPECT_EQ(seen.count, 1667u);
  EXPECT_EQ(seen.wrong, 0u);
  Allocation removed;
  EXPECT_FALSE(allocations.Remove(1 << 21, &removed));
  EXPECT_TRUE(allocations.Remove(2 << 21, &removed));
}

TEST(AllocationsTest, ABlockIsChargedWithItsFirstPartAndReleasedWithItsLast) {
  static Allocations blocks;
  blocks.Reset();
  EXPECT_TRUE(blocks.Join(4 << 20, 0));
  EXPECT_FALSE(blocks.Join(4 << 20, 0));
  EXPECT_FALSE(blocks.Leave(4 << 20));
  EXPECT_TRUE(blocks.Leave(4 << 20));
  EXPECT_FALSE(blocks.Leave(4 << 20)) << "the block has no parts left";
  EXPECT_TRUE(blocks.Join(4 << 20, 0)) << "the driver may use the address again";
}

TEST(AllocationsTest, ThreadsDoNotLoseEachOthersEntries) {
  static Allocations allocations;
  allocations.Reset();
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (uint64_t round = 0; round < 20; ++round) {
        for (uint64_t i = 1; i <= 500; ++i)
          allocations.Insert((thread << 40) + (i << 21), {.blocks = i});
        for (uint64_t i = 1; i <= 500; ++i) {
          Allocation removed;
          if (!allocations.Remove((thread << 40) + (i << 21), &removed) || removed.blocks != i)
            std::abort();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tessera::limiter
