// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "src/base/file.h"
#include "src/sim/state.h"
#include "src/sim/turns.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;
constexpr uint64_t kMillisecondNs = 1'000'000;

// A GPU in MIG mode with halves (profile 0) and quarters (profile 1) of 4 slices.
class StateMigTest : public ::testing::Test {
 protected:
  StateMigTest() {
    auto image = std::make_unique<StateFile>();
    image->magic = kStateMagic;
    image->version = kStateVersion;
    image->size = sizeof(StateFile);
    image->gpu_count = 1;
    image->facts[0].memory_bytes = 400 * kMebibyte;
    std::strcpy(image->facts[0].uuid, "GPU-12345678-1234-1234-1234-123456780000");
    image->facts[0].mig_profiles[0] = {"2g.200mb", 1, 14, 2, 2, 0x5, 2,
                                       20,         2, 0,  0, 0, 0,   200 * kMebibyte};
    image->facts[0].mig_profiles[1] = {"1g.100mb", 0, 19, 1, 1, 0xF, 4,
                                       10,         1, 0,  0, 0, 0,   100 * kMebibyte};
    EXPECT_EQ(State::Create(dir_.path(), *image), 0);
    EXPECT_EQ(state_.Open(dir_.path()), 0);
    EXPECT_EQ(state_.SetMigMode(0, true), 0);
  }
  // A compute instance with all slices of a new GPU instance.
  uint32_t NewInstance(uint32_t profile) {
    uint32_t parent = 0, instance = 0;
    EXPECT_EQ(state_.CreateGpuInstance(0, profile, State::kAnyStart, &parent), 0);
    const uint32_t slices = state_.ProfileOf(0, parent).slices;
    EXPECT_EQ(state_.CreateComputeInstance(0, parent, slices, State::kAnyStart, &instance), 0);
    return instance;
  }

  TempDir dir_;
  State state_;
};

TEST_F(StateMigTest, MemoryIsChargedToTheInstanceAndToTheGpu) {
  const uint32_t half = NewInstance(0);
  const uint32_t quarter = NewInstance(1);
  State other_view;
  ASSERT_EQ(other_view.Open(dir_.path()), 0);
  ProcessSlot in_half, in_quarter;
  ASSERT_EQ(in_half.Claim(&state_), 0);
  ASSERT_EQ(in_quarter.Claim(&other_view), 0);
  in_half.UseInstance(0, half);
  in_quarter.UseInstance(0, quarter);
  EXPECT_EQ(in_half.Charge(0, 150 * kMebibyte), 0);
  EXPECT_EQ(in_half.Charge(0, 60 * kMebibyte), ENOMEM) << "the GPU has room, the instance has not";
  EXPECT_EQ(in_quarter.Charge(0, 100 * kMebibyte), 0);
  EXPECT_EQ(in_quarter.Charge(0, 1 * kMebibyte), ENOMEM);
  EXPECT_EQ(state_.UsedBytes(0), 250 * kMebibyte);
  EXPECT_EQ(state_.UsedBytes(0, state_.gpu_state(0).compute_instances[half].gpu_instance),
            150 * kMebibyte);
  EXPECT_EQ(state_.DestroyComputeInstance(0, quarter), EBUSY);
  in_quarter.Release();
  EXPECT_EQ(state_.DestroyComputeInstance(0, quarter), 0);
  in_half.Release();
}

TEST_F(StateMigTest, InstancesRunInParallelAndProcessesOfAnInstanceTakeTurns) {
  const uint32_t first = NewInstance(0);
  const uint32_t second = NewInstance(0);
  State views[2];
  ProcessSlot slots[3];
  ASSERT_EQ(views[0].Open(dir_.path()), 0);
  ASSERT_EQ(views[1].Open(dir_.path()), 0);
  ASSERT_EQ(slots[0].Claim(&state_), 0);
  ASSERT_EQ(slots[1].Claim(&views[0]), 0);
  ASSERT_EQ(slots[2].Claim(&views[1]), 0);
  slots[0].UseInstance(0, first);
  slots[1].UseInstance(0, first);
  slots[2].UseInstance(0, second);
  const uint64_t start = MonotonicNs();
  for (ProcessSlot& slot : slots) Turns(&slot, 0).Request(2 * kMillisecondNs, start);
  Turn turn[3];
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(Turns(&slots[i], 0).Next(start + 10 * kMillisecondNs, &turn[i]));
  const bool ordered = turn[0].end_ns <= turn[1].start_ns || turn[1].end_ns <= turn[0].start_ns;
  EXPECT_TRUE(ordered) << "one instance has one process at a time";
  EXPECT_EQ(turn[2].start_ns, start) << "another instance does not wait";
  EXPECT_EQ(state_.gpu_state(0).turns.busy_ns.load(), 0u);
  for (ProcessSlot& slot : slots) slot.Release();
}

TEST_F(StateMigTest, TheBestPlacementLeavesRoomForLargeInstances) {
  uint32_t quarter = 0;
  ASSERT_EQ(state_.CreateGpuInstance(0, 1, 3, &quarter), 0);
  ASSERT_EQ(state_.CreateGpuInstance(0, 1, State::kAnyStart, &quarter), 0);
  EXPECT_EQ(state_.FreeStarts(0, 0), 0x1u) << "both quarters are in one half";
}

TEST_F(StateMigTest, InstancesNeedMigMode) {
  uint32_t instance = 0;
  ASSERT_EQ(state_.SetMigMode(0, false), 0);
  EXPECT_EQ(state_.CreateGpuInstance(0, 0, State::kAnyStart, &instance), EINVAL);
}

}  // namespace
}  // namespace tessera::sim
