// SPDX-License-Identifier: Apache-2.0
#include "src/sim/state.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/sim/turns.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint32_t kXid = 8;

class StateTest : public ::testing::Test {
 protected:
  StateTest() {
    auto image = std::make_unique<StateFile>();
    image->magic = kStateMagic;
    image->version = kStateVersion;
    image->size = sizeof(StateFile);
    image->gpu_count = 2;
    for (uint32_t i = 0; i < 2; ++i) {
      image->facts[i].minor = i;
      image->facts[i].memory_bytes = 1100 * kMiB;
      image->facts[i].reserved_bytes = 100 * kMiB;
      image->gpu_states[i].utilization_gpu = kDerived;
      image->gpu_states[i].utilization_memory = kDerived;
    }
    EXPECT_EQ(State::Create(folder_.path(), *image), 0);
    EXPECT_EQ(state_.Open(folder_.path()), 0);
  }

  // Starts a child that runs `body` with its slot and then waits until it is killed.
  pid_t Child(const std::function<void(ProcessSlot*)>& body) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      State state;
      ProcessSlot slot;
      if (state.Open(folder_.path()) != 0 || slot.Claim(&state) != 0) _exit(1);
      body(&slot);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
  }

  static void Kill(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  TempDir folder_;
  State state_;
};

TEST_F(StateTest, OpenRefusesAFileWithoutAState) {
  TempDir other;
  State state;
  EXPECT_EQ(state.Open(other.path()), ENOENT);
  ASSERT_TRUE(WriteFileAtomically(other.path() + "/state", "not one", 0644).ok());
  EXPECT_EQ(state.Open(other.path()), EPROTO);
  EXPECT_FALSE(state.valid());
}

TEST_F(StateTest, ChargesToTheLastByteAndNoFurther) {
  ProcessSlot slot;
  ASSERT_EQ(slot.Claim(&state_), 0);
  EXPECT_EQ(slot.Charge(0, 999 * kMiB), 0);
  EXPECT_EQ(slot.Charge(0, kMiB + 1), ENOMEM);
  EXPECT_EQ(slot.Charge(0, kMiB), 0);
  EXPECT_EQ(slot.Charge(0, 1), ENOMEM);
  EXPECT_EQ(slot.Charge(1, 1000 * kMiB), 0);
  EXPECT_EQ(state_.UsedBytes(0), 1000 * kMiB);
  slot.Uncharge(0, 999 * kMiB);
  EXPECT_EQ(state_.UsedBytes(0), kMiB);
  slot.Release();
  EXPECT_EQ(state_.UsedBytes(0), 0u);
}

TEST_F(StateTest, SeesItsOwnProcessAndOthersByPid) {
  ProcessSlot slot;
  ASSERT_EQ(slot.Claim(&state_), 0);
  ASSERT_EQ(slot.Charge(0, kMiB), 0);
  const pid_t child = Child([](ProcessSlot* other) { (void)other->Charge(0, 2 * kMiB); });
  ProcessView views[4];
  ASSERT_EQ(state_.Processes(0, views, 4), 2u);
  EXPECT_EQ(views[0].pid, getpid());
  EXPECT_EQ(views[0].bytes, kMiB);
  EXPECT_EQ(views[1].pid, child);
  EXPECT_EQ(views[1].bytes, 2 * kMiB);
  Kill(child);
  EXPECT_EQ(state_.Processes(0, views, 4), 1u);
  slot.Release();
}

TEST_F(StateTest, MemoryOfAKilledProcessIsFreeAtOnce) {
  const pid_t child = Child([](ProcessSlot* slot) { (void)slot->Charge(0, 900 * kMiB); });
  ProcessSlot slot;
  ASSERT_EQ(slot.Claim(&state_), 0);
  EXPECT_EQ(slot.Charge(0, 200 * kMiB), ENOMEM);
  EXPECT_EQ(state_.UsedBytes(0), 900 * kMiB);
  Kill(child);
  EXPECT_EQ(state_.UsedBytes(0), 0u);
  EXPECT_EQ(slot.Charge(0, 1000 * kMiB), 0);
}

TEST_F(StateTest, AForkedChildDoesNotOwnTheSlot) {
  ProcessSlot slot;
  ASSERT_EQ(slot.Claim(&state_), 0);
  const pid_t child = fork();
  if (child == 0) _exit(slot.IsOwned() || slot.Charge(0, 1) != ESTALE ? 1 : 0);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(slot.Charge(0, 1), 0) << "the end of the child must not free the slot of the parent";
}

TEST_F(StateTest, OpeningTheStateAgainDoesNotFreeTheSlot) {
  ProcessSlot slot;
  ASSERT_EQ(slot.Claim(&state_), 0);
  ASSERT_EQ(slot.Charge(0, kMiB), 0);
  {
    State other;
    ASSERT_EQ(other.Open(folder_.path()), 0);
  }
  EXPECT_EQ(state_.UsedBytes(0), kMiB);
}

TEST_F(StateTest, SlotsOfDeadProcessesAreReused) {
  for (int i = 0; i < 20; ++i) Kill(Child([](ProcessSlot*) {}));
  EXPECT_EQ(state_.file().slots_end.load(), 1u);
}

TEST_F(StateTest, UtilizationFollowsTheTurnsOfTheLastSecond) {
  ProcessSlot slot;
  ASSERT_EQ(slot.Claim(&state_), 0);
  EXPECT_EQ(state_.Utilization(0).gpu, 0u);
  Turns turns(&slot, 0);
  Turn turn;
  int used = 0;
  for (int i = 0; i < 5 && (used < 38 || used > 42); ++i) {
    // A pause of the test moves its turns out of the window of one second. A new try begins when
    // all earlier turns are outside of the window.
    if (i > 0) usleep(1'200'000);
    const uint64_t now = MonotonicNs();
    turns.Request(400'000'000, now - 400'000'000);
    while (turns.Next(now, &turn)) turns.SetUsedUntil(turn.end_ns);
    used = int(state_.Utilization(0).gpu);
  }
  EXPECT_NEAR(used, 40, 2);
  state_.gpu_state(0).utilization_gpu = 77;
  EXPECT_EQ(state_.Utilization(0).gpu, 77u);
}

TEST_F(StateTest, AWaiterWakesForAnEventOfAnotherProcess) {
  uint64_t last = state_.event_count();
  EventView event;
  EXPECT_FALSE(state_.WaitEvent(&last, 0, &event));
  const pid_t child = fork();
  if (child == 0) {
    State state;
    if (state.Open(folder_.path()) == 0) state.PostEvent(1, kXid, 79);
    _exit(0);
  }
  ASSERT_TRUE(state_.WaitEvent(&last, 10'000, &event));
  EXPECT_EQ(event.gpu, 1u);
  EXPECT_EQ(event.data, 79u);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(state_.WaitEvent(&last, 0, &event));
}

TEST_F(StateTest, ASlowListenerGetsTheNewestEventsInOrder) {
  uint64_t last = 0;
  for (uint32_t i = 1; i <= kMaxEvents + 50; ++i) state_.PostEvent(0, kXid, i);
  EventView event;
  ASSERT_TRUE(state_.WaitEvent(&last, 0, &event));
  uint64_t previous = event.data;
  while (state_.WaitEvent(&last, 0, &event)) EXPECT_EQ(event.data, ++previous);
  EXPECT_EQ(previous, kMaxEvents + 50);
}

TEST_F(StateTest, AFaultSkipsItsFirstCallsAndThenAppliesAFixedNumberOfTimes) {
  ASSERT_EQ(state_.AddFault("nvmlDeviceGetName", 1, 15, false, /*skipped_calls=*/1, /*times=*/2),
            0);
  EXPECT_EQ(state_.CheckFault("nvmlDeviceGetName", 0), 0u);
  std::vector<uint32_t> answers;
  for (int i = 0; i < 5; ++i) answers.push_back(state_.CheckFault("nvmlDeviceGetName", 1));
  EXPECT_EQ(answers, (std::vector<uint32_t>{0, 15, 15, 0, 0}));
}

TEST_F(StateTest, ACallThatHangsReturnsWhenTheFaultIsCleared) {
  ASSERT_EQ(state_.AddFault("*", kAllGpus, 0, /*hang=*/true, 0, 0), 0);
  std::atomic<bool> returned = false;
  std::thread caller([&] {
    EXPECT_EQ(state_.CheckFault("nvmlInit_v2", kAllGpus), 0u);
    returned = true;
  });
  while (state_.file().faults[0].calls.load() == 0) std::this_thread::yield();
  EXPECT_FALSE(returned);
  state_.ClearFaults(nullptr, kAllGpus);
  caller.join();
}

TEST_F(StateTest, CountsUnimplementedCallsByName) {
  state_.CountUnimplemented("cuGraphCreate");
  state_.CountUnimplemented("cuGraphCreate");
  state_.CountUnimplemented("cuTexRefCreate");
  uint64_t graph = 0;
  for (const NamedCounter& counter : state_.file().counters) {
    if (strcmp(counter.name, "cuGraphCreate") == 0) graph += counter.count.load();
  }
  EXPECT_EQ(graph, 2u);
}

TEST_F(StateTest, CountsKernelsByNamePrefixApartFromCalls) {
  const std::string name(100, 'k');
  AtomicU64* counter = state_.KernelCounter(name.c_str());
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(state_.KernelCounter(name.c_str()), counter);
  EXPECT_EQ(state_.KernelCounter((name + "2").c_str()), counter);
  EXPECT_NE(state_.KernelCounter("train"), counter);
  for (uint32_t i = 0; i < 2 * kMaxCounters; ++i) {
    (void)state_.KernelCounter(std::to_string(i).c_str());
  }
  EXPECT_EQ(state_.KernelCounter("one too many"), nullptr);
  state_.CountUnimplemented("cuTexRefCreate");
  uint64_t calls = 0;
  for (const NamedCounter& other : state_.file().counters) calls += other.count.load();
  EXPECT_EQ(calls, 1u);
}

}  // namespace
}  // namespace tessera::sim
