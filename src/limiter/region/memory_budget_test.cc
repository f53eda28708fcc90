// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/memory_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace tessera::limiter {
namespace {

constexpr uint64_t kLimit = 1000;

// A region in memory, and the budget of each process that shares it.
struct Region {
  explicit Region(size_t processes) : limits(new Limits()), usage(new Usage()), budgets(processes) {
    limits->gpu_count = 1;
    limits->gpus[0].memory = kLimit;
    usage->slots_end = uint32_t(processes);
    for (uint32_t i = 0; i < processes; ++i) {
      budgets[i] = std::make_unique<MemoryBudget>();
      budgets[i]->Open(limits.get(), usage.get(), i, nullptr);
    }
  }
  std::unique_ptr<Limits> limits;
  std::unique_ptr<Usage> usage;
  std::vector<std::unique_ptr<MemoryBudget>> budgets;
};

// Holds the bytes in one step, or in three steps as the limiter does around a driver call.
bool TryHold(MemoryBudget& budget, uint64_t bytes, bool at_once) {
  if (at_once) return budget.Hold(0, bytes);
  if (!budget.Reserve(0, bytes)) return false;
  budget.Add(0, bytes);
  budget.Cancel(0, bytes);
  return true;
}

void Hold(MemoryBudget& budget, uint64_t bytes) { ASSERT_TRUE(budget.Hold(0, bytes)); }

TEST(MemoryBudgetTest, GrantsExactlyTheLimit) {
  Region region(1);
  MemoryBudget& budget = *region.budgets[0];
  EXPECT_FALSE(budget.Reserve(0, kLimit + 1));
  EXPECT_FALSE(budget.Hold(0, kLimit + 1));
  Hold(budget, kLimit);
  EXPECT_EQ(budget.HeldBytes(0), kLimit);
  EXPECT_FALSE(budget.Reserve(0, 1));
  EXPECT_FALSE(budget.Hold(0, 1));
  budget.Release(0, 1);
  EXPECT_TRUE(budget.Reserve(0, 1));
  EXPECT_FALSE(budget.Hold(0, 1)) << "a reservation counts";
  EXPECT_EQ(budget.HeldBytes(0), kLimit - 1);
}

TEST(MemoryBudgetTest, AReservationInThreeStepsHoldsTheSameAsOneStep) {
  Region region(1);
  MemoryBudget& budget = *region.budgets[0];
  for (const bool at_once : {false, true}) {
    EXPECT_TRUE(TryHold(budget, 300, at_once));
    EXPECT_EQ(region.usage->gpus[0].pending[0], 0u);
  }
  EXPECT_EQ(budget.HeldBytes(0), 600u);
}

TEST(MemoryBudgetTest, OneLimitHoldsForAllProcessesOfTheContainer) {
  Region region(3);
  Hold(*region.budgets[0], 600);
  EXPECT_FALSE(region.budgets[1]->Reserve(0, 500));
  Hold(*region.budgets[2], 400);
  EXPECT_FALSE(region.budgets[0]->Reserve(0, 1));
}

TEST(MemoryBudgetTest, AReservationCountsUntilItIsCanceled) {
  Region region(2);
  ASSERT_TRUE(region.budgets[0]->Reserve(0, 700));
  EXPECT_FALSE(region.budgets[1]->Reserve(0, 400));
  region.budgets[0]->Cancel(0, 700);
  EXPECT_TRUE(region.budgets[1]->Reserve(0, 400));
}

TEST(MemoryBudgetTest, UnaccountedBytesCountAgainstTheLimit) {
  Region region(1);
  region.limits->gpus[0].unaccounted = 300;
  EXPECT_FALSE(region.budgets[0]->Reserve(0, 701));
  EXPECT_TRUE(region.budgets[0]->Reserve(0, 700));
}

TEST(MemoryBudgetTest, ALimitBelowTheHeldBytesRefusesAndFreesNothing) {
  Region region(1);
  Hold(*region.budgets[0], 800);
  region.limits->gpus[0].memory = 500;
  EXPECT_FALSE(region.budgets[0]->Reserve(0, 1));
  EXPECT_EQ(region.budgets[0]->HeldBytes(0), 800u);
  region.budgets[0]->Release(0, 400);
  EXPECT_TRUE(region.budgets[0]->Reserve(0, 100));
}

TEST(MemoryBudgetTest, AGpuWithoutALimitIsCountedAndNeverRefused) {
  Region region(1);
  region.limits->gpus[0].memory = 0;
  Hold(*region.budgets[0], 5 * kLimit);
  EXPECT_EQ(region.budgets[0]->HeldBytes(0), 5 * kLimit);
}

TEST(MemoryBudgetTest, ThePeakStaysWhenMemoryIsFreed) {
  Region region(2);
  Hold(*region.budgets[0], 600);
  Hold(*region.budgets[1], 300);
  region.budgets[0]->Release(0, 600);
  Hold(*region.budgets[0], 100);
  EXPECT_EQ(region.usage->gpus[0].peak, 900u);
}

// A thread with an even number is a process; the next thread is a second thread of that process.
// The test sums the bytes that the threads hold, independently of the budgets.
TEST(MemoryBudgetTest, RacingProcessesNeverHoldMoreThanTheLimitAtAnyInstant) {
  constexpr int kThreads = 8;
  Region region(kThreads / 2);
  std::atomic<uint64_t> held{0}, max_held{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      MemoryBudget& budget = *region.budgets[i / 2];
      std::mt19937 random(i);
      for (int round = 0; round < 200'000; ++round) {
        const uint64_t bytes = 1 + random() % 400;
        const bool at_once = random() % 2 == 0;
        if (!(at_once ? budget.Hold(0, bytes) : budget.Reserve(0, bytes))) continue;
        const uint64_t now = held.fetch_add(bytes) + bytes;
        for (uint64_t seen = max_held; now > seen && !max_held.compare_exchange_weak(seen, now);) {
        }
        if (!at_once) {
          budget.Add(0, bytes);
          budget.Cancel(0, bytes);
        }
        if (random() % 16 == 0) std::this_thread::yield();
        held.fetch_sub(bytes);
        budget.Release(0, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(max_held.load(), kLimit);
  EXPECT_GT(max_held.load(), kLimit / 2) << "the threads did not race";
  EXPECT_EQ(region.budgets[0]->HeldBytes(0), 0u);
  for (size_t i = 0; i < region.budgets.size(); ++i)
    EXPECT_EQ(region.usage->gpus[0].pending[i], 0u);
}

// Any two reservations fit together, so none may be refused, however they race.
TEST(MemoryBudgetTest, AReservationThatFitsIsNotRefusedBecauseOfARace) {
  constexpr int kThreads = 4;
  Region region(kThreads);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  std::atomic<int> inside{0};
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200'000; ++round) {
        // A counter of the test admits two threads at a time.
        if (inside.fetch_add(1) >= 2) {
          inside.fetch_sub(1);
          continue;
        }
        if (TryHold(*region.budgets[i], kLimit / 2, (round + i) % 2 == 0)) {
          region.budgets[i]->Release(0, kLimit / 2);
        } else {
          ++refused;
        }
        inside.fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
}

}  // namespace
}  // namespace tessera::limiter
