// SPDX-License-Identifier: Apache-2.0
// Tables of objects that some threads destroy while others create new ones, on a model of a driver
// that reuses a handle as soon as its object is destroyed.
#include "src/limiter/tables/moment.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/limiter/tables/charges.h"
#include "src/limiter/tables/contexts.h"
#include "src/limiter/tables/libraries.h"

namespace tessera::limiter {
namespace {

constexpr int kReuses = 100'000;
constexpr uint64_t kBytes = 4 << 20;
const void* const kHandle = reinterpret_cast<const void*>(uintptr_t(4096));

// Two threads create objects and destroy them. Both get the same handle in turn: one thread may add
// its object before the other has removed the old one.
template <typename Moment, typename Add, typename Remove>
void ReuseOneHandle(Moment moment, Add add, Remove remove) {
  std::atomic<bool> exists{false};
  const auto run = [&] {
    for (int round = 0; round < kReuses; ++round) {
      while (exists.exchange(true)) std::this_thread::yield();
      add();
      const uint64_t before = moment();
      exists = false;
      remove(before);
    }
  };
  std::thread other(run);
  run();
  other.join();
}

class MomentTest : public ::testing::Test {
 protected:
  MomentTest() {
    limits_.gpu_count = 1;
    usage_.slots_end = 1;
    budget_.Open(&limits_, &usage_, 0, nullptr);
  }
  static inline Limits limits_{};
  static inline Usage usage_{};
  MemoryBudget budget_;
};

TEST_F(MomentTest, AChargeEndsOnceAndNotWithAnOlderObjectWithTheSameHandle) {
  Charges charges;
  Contexts::Info context;
  context.id = 1, context.gpu = 0;
  ReuseOneHandle(
      NextMoment,
      [&] {
        EXPECT_TRUE(charges.Add(kHandle, context, kBytes, &budget_));
        EXPECT_GE(budget_.HeldBytes(0), kBytes);
      },
      [&](uint64_t call_moment) { charges.End(kHandle, call_moment, &budget_); });
  EXPECT_EQ(budget_.HeldBytes(0), 0u);
  Charges::ChargedObject found;
  EXPECT_FALSE(charges.Find(kHandle, &found));
}

// A call that has destroyed an object ends after the driver has given its handle to a new object.
TEST_F(MomentTest, ALibraryLoadedAfterTheCallBeganIsNotRemoved) {
  Libraries libraries;
  Libraries::LoadedLibrary found;
  EXPECT_TRUE(libraries.Add(kHandle, {libraries.NewId(), kBytes}, &found));
  const uint64_t call_moment = NextMoment();
  EXPECT_TRUE(libraries.Add(kHandle, {libraries.NewId(), kBytes}, &found));
  EXPECT_FALSE(libraries.Remove(kHandle, call_moment, &found));
  EXPECT_TRUE(libraries.Remove(kHandle, NextMoment(), &found));
}

TEST_F(MomentTest, AContextCreatedAfterTheCallBeganIsNotRemoved) {
  static Contexts contexts;
  Contexts::Info found;
  bool is_new = false;
  EXPECT_TRUE(contexts.AddCounted(kHandle, 0, contexts.last_id(), &is_new, &found));
  const uint64_t last_id = contexts.last_id();
  EXPECT_TRUE(contexts.AddCounted(kHandle, 0, contexts.last_id(), &is_new, &found));
  EXPECT_FALSE(contexts.Remove(kHandle, last_id, &found));
  EXPECT_TRUE(contexts.Remove(kHandle, contexts.last_id(), &found));
}

TEST_F(MomentTest, ALibraryIsReportedOnceAsRemovedOrReplaced) {
  Libraries libraries;
  std::atomic<int> ended{0};
  ReuseOneHandle(
      NextMoment,
      [&] {
        Libraries::LoadedLibrary replaced;
        EXPECT_TRUE(libraries.Add(kHandle, {libraries.NewId(), kBytes}, &replaced));
        if (replaced.id != 0) ++ended;
      },
      [&](uint64_t call_moment) {
        Libraries::LoadedLibrary removed;
        if (libraries.Remove(kHandle, call_moment, &removed)) ++ended;
      });
  EXPECT_EQ(ended.load(), 2 * kReuses);
}

TEST_F(MomentTest, AContextIsReportedOnceAsRemovedOrReplaced) {
  static Contexts contexts;
  std::atomic<int> ended{0};
  ReuseOneHandle(
      [&] { return contexts.last_id(); },
      [&] {
        Contexts::Info replaced;
        bool is_new = false;
        EXPECT_TRUE(contexts.AddCounted(kHandle, 0, contexts.last_id(), &is_new, &replaced));
        EXPECT_TRUE(is_new);
        if (replaced.id != 0) ++ended;
      },
      [&](uint64_t last_id) {
        Contexts::Info removed;
        if (contexts.Remove(kHandle, last_id, &removed)) ++ended;
      });
  EXPECT_EQ(ended.load(), 2 * kReuses);
}

}  // namespace
}  // namespace tessera::limiter
