// SPDX-License-Identifier: Apache-2.0
// Time slicing of a GPU. One process has the GPU at a time, for at most kQuantumNs while others
// wait, as with NVIDIA's default time slicing. A kernel that is not finished when a turn ends
// continues in the next turn of its process.
//
// There is no arbiter. The turns follow from the requests that processes have written to the state
// (SlotGpu, TurnQueue). A process that needs to know its turns computes and writes all turns until
// now, including those of other processes. So no GPU time is lost while the threads of a process do
// not run: the process later computes what the GPU did in its past turns.
//
//   requests  every process writes how much GPU time it needs, and since when
//   turns     follow each other in the order of slots, cyclically. A process that needs more time
//             continues until its quantum ends
//   GiveBack  a process without more work ends its turn
//
// A dead process gets no turn, nor does a process that has not consumed its last kTurnRecords
// turns. If the holder of the lock dies, the next process takes the lock (the record lock in
// `slots` shows who is alive).
//
// With MIG, each compute instance has its own turns, beside the turns of other instances.
//
// Threads: one at a time for each object. Processes: any.
#pragma once

#include <cstdint>

#include "src/sim/state.h"

namespace tessera::sim {

inline constexpr uint64_t kQuantumNs = 2'000'000;
inline constexpr uint64_t kSwitchNs = 10'000;  // between turns of different processes

struct Turn {
  uint64_t start_ns = 0, end_ns = 0;
};

// The turns of one process on one GPU.
class Turns {
 public:
  // REQUIRES: `slot` is claimed, and outlives this object.
  Turns(ProcessSlot* slot, uint32_t gpu) : slot_(slot), gpu_(gpu) {}

  // The process needs `work_ns` of GPU time after the time that SetUsedUntil has set. If it did not
  // wait before, its wait starts at `wait_start_ns`.
  void Request(uint64_t work_ns, uint64_t wait_start_ns);
  // Adds to the requested time. Cost: two stores.
  void RequestMore(uint64_t work_ns, uint64_t wait_start_ns);

  // Writes all turns until now. True: *turn has become longer, or is now a later turn.
  bool Next(uint64_t now_ns, Turn* turn);
  // Sets the time until which the current turn is used.
  void SetUsedUntil(uint64_t until_ns) { used_until_ns_ = until_ns; }
  // Ends the current turn at `at_ns`, if no other turn has begun.
  void GiveBack(Turn* turn, uint64_t at_ns);

  // A lower bound of the end of `work_ns` more work; exact if no process starts or ends.
  uint64_t EarliestEnd(uint64_t now_ns, uint64_t work_ns);

 private:
  class Lock;
  SlotGpu& SlotGpuOf(uint32_t slot) { return slot_->state().file().slots[slot].gpus[gpu_]; }
  // The queue of the GPU, or of the process's compute instance.
  TurnQueue& queue() {
    return slot_->state().TurnQueueOf(gpu_, SlotGpuOf(slot_->index()).instance_plus_1.load());
  }
  uint64_t WaitingNs(uint32_t slot);
  bool MayHaveTurn(uint32_t slot);
  bool IsAlive(uint32_t slot);
  bool ContinueTurn(uint64_t from_ns);
  bool StartNextTurn(uint64_t from_ns, uint64_t now_ns);
  void GrantTurn(uint32_t slot, uint64_t start_ns, uint64_t max_ns);
  uint64_t UsedNs();

  ProcessSlot* const slot_;
  const uint32_t gpu_;
  uint64_t turn_number_ = 0;  // of the current turn, from 1
  uint64_t used_until_ns_ = 0;
};

}  // namespace tessera::sim
