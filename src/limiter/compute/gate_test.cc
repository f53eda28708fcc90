// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/compute/gate.h"

#include <gtest/gtest.h>

#include <memory>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// Each event is stamped with the time at which the test lets the GPU reach it.
struct FakeGpu {
  int64_t now = kSecond;
  int64_t stamps[2 * Books::kMarks] = {};
  int64_t stamp = 0;  // of the events that are recorded next; 0: not reached yet

  int64_t Now() { return now; }
  bool Record(int event, int /*stream*/) {
    stamps[event] = stamp;
    return true;
  }
  bool Done(int event) { return stamps[event] != 0; }
  int64_t Elapsed(int start, int end) { return stamps[end] - stamps[start]; }
};

class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    limit_.epoch = 1;
    limit_.cap = kOne;
    gate_.books().Open({&limit_, &part_, &charge_, &slot_}, prices_.get());
  }
  // Launches work of 100 us, and returns its mark.
  int Launch(int64_t done_at) {
    int mark = Books::kNoMark;
    const Books::Launch launch{KernelWork(1, 1024, 1, 1), 100 * kMicrosecond, /*stream=*/1};
    EXPECT_EQ(gate_.Decide(&thread_, launch, 1, &mark), 0);
    if (mark == Books::kNoMark) return mark;
    gpu_.stamp = done_at == 0 ? 0 : done_at - 100 * kMicrosecond;
    const bool recorded = gate_.BeginLaunch(mark, 1);
    gpu_.stamp = done_at;
    gate_.EndLaunch(mark, 1, recorded);
    return mark;
  }

  FakeGpu gpu_;
  Gate<FakeGpu, int> gate_{&gpu_};
  ComputeLimit limit_ = {};
  ComputePart part_ = {};
  ComputeCharge charge_ = {};
  ComputeSlot slot_ = {};
  const std::unique_ptr<Prices> prices_ = std::make_unique<Prices>();
  Books::ThreadCredit thread_;
};

// A debugger or a freezer stops all threads of a process between two launches. When they continue,
// one thread launches while another thread settles the mark of the first launch.
TEST_F(GateTest, TheTimeInWhichAProcessWasStoppedIsNotCharged) {
  for (int i = 0; i < 5; ++i) {  // the price is known afterwards
    gpu_.now += kMillisecond;
    Launch(gpu_.now + 100 * kMicrosecond);
    gpu_.now += kMillisecond;
    gate_.SettleEnded(gpu_.now);
  }
  gpu_.now += kMillisecond;
  thread_.credit = 0;
  const int before = Launch(0);
  ASSERT_NE(before, Books::kNoMark);
  gpu_.stamps[gate_.StartOf(before)] = gpu_.now;
  gpu_.stamps[gate_.EndOf(before)] = gpu_.now + 100 * kMicrosecond;
  const int64_t charged = charge_.charged;

  gpu_.now += 5 * kSecond;
  ASSERT_EQ(gate_.books().AcquireOldest(), before);
  thread_.credit = 0;
  ASSERT_NE(Launch(gpu_.now + 100 * kMicrosecond), Books::kNoMark);
  gate_.books().Release();
  gpu_.now += kMillisecond;
  gate_.SettleEnded(gpu_.now);
  EXPECT_LT(charge_.charged - charged, 10 * kMillisecond);
}

}  // namespace
}  // namespace tessera::limiter
