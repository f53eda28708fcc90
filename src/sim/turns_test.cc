// SPDX-License-Identifier: Apache-2.0
// Turns are computed from times that callers pass, so these tests need no clock.
#include "src/sim/turns.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "src/base/file.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;

// A process with work for GPU 0.
struct Worker {
  explicit Worker(State* state) {
    EXPECT_EQ(slot.Claim(state), 0);
    turns = std::make_unique<Turns>(&slot, 0);
  }
  // Uses all turns until `now`, and returns their total time.
  uint64_t Run(uint64_t now) {
    do {
      const uint64_t end = std::min(turn.end_ns, now);
      if (used_until < turn.start_ns) used_until = turn.start_ns;
      if (end > used_until) gpu_time += end - used_until, used_until = end;
      turns->SetUsedUntil(used_until);
    } while (used_until >= turn.end_ns && turns->Next(now, &turn));
    return gpu_time;
  }

  ProcessSlot slot;
  std::unique_ptr<Turns> turns;
  Turn turn;
  uint64_t used_until = 0, gpu_time = 0;
};

class TurnsTest : public ::testing::Test {
 protected:
  TurnsTest() {
    auto image = std::make_unique<StateFile>();
    image->magic = kStateMagic;
    image->version = kStateVersion;
    image->size = sizeof(StateFile);
    image->gpu_count = 1;
    EXPECT_EQ(State::Create(folder_.path(), *image), 0);
    EXPECT_EQ(state_.Open(folder_.path()), 0);
  }
  TempDir folder_;
  State state_;
};

TEST_F(TurnsTest, TheTimeOfAProcessIsCountedInTheSamplesOfTheDriver) {
  const ProcessTimeSample* samples = state_.file().slots[0].gpus[0].samples;
  Worker worker(&state_);
  const auto used = [&](uint64_t index) {
    const ProcessTimeSample& sample = samples[index % kProcessTimeSamples];
    return sample.index == index ? sample.busy_ns.load() : 0;
  };
  worker.turns->Request(300 * kMs, 10 * kMs);
  worker.Run(400 * kMs);
  EXPECT_EQ(used(0), 157 * kMs);
  EXPECT_EQ(used(1), 143 * kMs);
  EXPECT_EQ(used(2), 0u);
  // A turn that the process returns early does not count.
  worker.turns->Request(2 * kMs, 600 * kMs);
  ASSERT_TRUE(worker.turns->Next(600 * kMs, &worker.turn));
  EXPECT_EQ(used(3), 2 * kMs);
  worker.turns->GiveBack(&worker.turn, worker.turn.start_ns + kMs);
  EXPECT_EQ(used(3), kMs);
  // The sample that is one ring length older is overwritten.
  constexpr uint64_t kLater = uint64_t{2} * kProcessTimeSamples * kSamplePeriodNs;
  worker.turns->SetUsedUntil(worker.turn.end_ns);
  worker.turns->Request(kMs, kLater);
  ASSERT_TRUE(worker.turns->Next(kLater + kMs, &worker.turn));
  EXPECT_EQ(used(0), 0u);
  EXPECT_EQ(used(uint64_t{2} * kProcessTimeSamples), kMs);
}

TEST_F(TurnsTest, AProcessAloneKeepsTheGpu) {
  Worker worker(&state_);
  worker.turns->Request(50 * kMs, 100 * kMs);
  EXPECT_EQ(worker.Run(1000 * kMs), 50 * kMs);
  EXPECT_EQ(worker.turn.start_ns, 100 * kMs) << "no pause between its turns";
  EXPECT_EQ(worker.turn.end_ns, 150 * kMs);
  EXPECT_EQ(state_.gpu_state(0).turns.busy_ns.load(), 50 * kMs);
}

// A killed process leaves no sample of its last turns.
TEST_F(TurnsTest, TurnsAfterTheLastSampleDoNotKeepTheGpuBusy) {
  state_.gpu_state(0).utilization_gpu.store(kDerived);
  Worker worker(&state_);
  const uint64_t begin = MonotonicNs() - 3000 * kMs;
  worker.turns->Request(45 * kMs, begin);
  EXPECT_EQ(worker.Run(begin + kMs), kMs);
  EXPECT_EQ(worker.Run(begin + 45 * kMs), 45 * kMs);
  EXPECT_EQ(state_.gpu_state(0).turns.busy_sample_count.load(), 1u);
  EXPECT_EQ(state_.Utilization(0).gpu, 0u);
}

TEST_F(TurnsTest, TwoBusyProcessesGetHalfEach) {
  Worker a(&state_), b(&state_);
  a.turns->Request(10'000 * kMs, 0);
  b.turns->Request(10'000 * kMs, 0);
  for (uint64_t now = 0; now <= 1000 * kMs; now += kMs) a.Run(now), b.Run(now);
  EXPECT_NEAR(double(a.gpu_time), 497.5 * kMs, 2.1 * kMs) << "a switch takes 10 us";
  EXPECT_NEAR(double(b.gpu_time), 497.5 * kMs, 2.1 * kMs);
}

TEST_F(TurnsTest, AProcessThatRunsLateStillHasItsTurns) {
  Worker a(&state_), b(&state_);
  a.turns->Request(10'000 * kMs, 0);
  b.turns->Request(10'000 * kMs, 0);
  for (uint64_t now = 0; now <= 10 * kMs; now += kMs) a.Run(now);
  EXPECT_NEAR(double(a.Run(10 * kMs)), 6 * kMs, kMs);
  EXPECT_NEAR(double(b.Run(10 * kMs)), 4 * kMs, kMs);
}

TEST_F(TurnsTest, AnIdleProcessGivesBackTheRestOfItsTurn) {
  Worker a(&state_), b(&state_);
  a.turns->Request(10'000 * kMs, 0);
  ASSERT_TRUE(a.turns->Next(kMs / 2, &a.turn));
  EXPECT_EQ(a.turn.end_ns, 2 * kMs);
  a.turns->SetUsedUntil(kMs);
  a.turns->GiveBack(&a.turn, kMs);
  EXPECT_EQ(a.turn.end_ns, kMs);
  b.turns->Request(kMs, kMs / 2);
  EXPECT_EQ(b.Run(10 * kMs), kMs);
  EXPECT_EQ(b.turn.start_ns, kMs + kSwitchNs);
  EXPECT_EQ(state_.gpu_state(0).turns.busy_ns.load(), 2 * kMs);
}

TEST_F(TurnsTest, NewWorkWithinAQuantumContinuesTheTurn) {
  Worker a(&state_), b(&state_);
  a.turns->Request(kMs, 0);
  b.turns->Request(5 * kMs, 0);
  ASSERT_TRUE(a.turns->Next(kMs / 2, &a.turn));
  EXPECT_EQ(a.turn.end_ns, kMs);
  a.turns->RequestMore(5 * kMs, kMs / 2);
  a.turns->SetUsedUntil(kMs);
  ASSERT_TRUE(a.turns->Next(kMs, &a.turn));
  EXPECT_EQ(a.turn.end_ns, 2 * kMs) << "the turn ends with the quantum: another process waits";
  EXPECT_EQ(b.Run(5 * kMs), 2 * kMs);
}

TEST_F(TurnsTest, AKilledProcessGetsNoTurn) {
  Worker a(&state_);
  a.turns->Request(1000 * kMs, 0);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    State state;
    ProcessSlot slot;
    if (state.Open(folder_.path()) != 0 || slot.Claim(&state) != 0) _exit(1);
    Turns turns(&slot, 0);
    turns.Request(1000 * kMs, 0);
    state.gpu_state(0).turns.lock = slot.index() + 1;  // as if the process had died with the lock
    if (write(ready[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(a.Run(100 * kMs), 100 * kMs);
}

// Two processes never have the GPU at one time, and it is never idle while a process waits, except
// during switches.
TEST_F(TurnsTest, RandomProcessesShareWithoutOverlapAndWithoutIdleness) {
  constexpr int kWorkers = 5;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const uint64_t base = state_.gpu_state(0).turns.busy_until_ns.load();
    const uint64_t busy_before = state_.gpu_state(0).turns.busy_ns.load();
    std::vector<std::unique_ptr<Worker>> workers;
    for (int i = 0; i < kWorkers; ++i) workers.push_back(std::make_unique<Worker>(&state_));
    uint64_t wanted = 0, used = 0;
    uint64_t now = base;
    for (int step = 0; step < 100; ++step) {
      now += random() % kMs;
      Worker& worker = *workers[random() % kWorkers];
      const uint64_t work = random() % (3 * kMs);
      worker.turns->RequestMore(work, now);
      wanted += work;
      workers[random() % kWorkers]->Run(now);
    }
    now += 10'000 * kMs;
    // A process that is far behind gets more turns only after it has consumed the old turns.
    for (int round = 0; round < 10; ++round) {
      for (auto& worker : workers) worker->Run(now);
    }
    for (auto& worker : workers) used += worker->gpu_time;
    EXPECT_EQ(used, wanted) << "seed " << seed;
    EXPECT_EQ(state_.gpu_state(0).turns.busy_ns.load() - busy_before, wanted) << "seed " << seed;
    const uint64_t span = state_.gpu_state(0).turns.busy_until_ns.load() - base;
    EXPECT_GE(span, wanted) << "seed " << seed;
    EXPECT_LE(span, wanted + 150 * kMs) << "seed " << seed;
    for (auto& worker : workers) worker->slot.Release();
  }
}

}  // namespace
}  // namespace tessera::sim
