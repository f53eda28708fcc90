// SPDX-License-Identifier: Apache-2.0
// How processes share the time of a GPU: one has it at a time, for at most kQuantumNs while others
// wait, as with NVIDIA's default time slicing. A kernel that is not finished when the turn ends
// goes on in the next turn of its process.
//
// There is no arbiter. Whose turn was, is and comes next follows from what the processes have
// written into the state (SlotGpu, GpuLive), and whoever needs to know writes the turns down until
// now, those of others included. So no GPU time is lost when the threads of a process do not run: a
// turn lies in the past for a process that comes late, and it computes then what the GPU has done.
//
//   wanted    every process says how much GPU time it needs, and since when
//   turns     in the order of slots, round and round; each follows the one before it. A process
//   that
//             wants more goes on until its quantum is over
//   giving back  a process that has nothing more to do ends its turn
//
// A process that dies is passed over, as is one that has kKeptTurns turns to catch up with. One
// that dies while it holds the lock loses it to the next (its record lock in `slots` says who is
// alive).
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

// The part of one process in the time of one GPU.
class Turns {
 public:
  // REQUIRES: `slot` is claimed, and outlives this object.
  Turns(ProcessSlot* slot, uint32_t gpu) : slot_(slot), gpu_(gpu) {}

  // The process needs `work_ns` after the point `done_ns` of its current turn. If it did not wait
  // before, it waits since `since_ns`.
  void Want(uint64_t work_ns, uint64_t since_ns);
  // The same, but more than before. Costs two stores.
  void WantMore(uint64_t work_ns, uint64_t since_ns);

  // Writes turns down until now. True: *turn is longer than it was, or a later one.
  bool Next(uint64_t now_ns, Turn* turn);
  // What is used of the current turn, so far.
  void Use(uint64_t until_ns) { used_until_ns_ = until_ns; }
  // Ends the current turn where nothing is left to do, if no other one has begun.
  void GiveBack(Turn* turn, uint64_t at_ns);

  // A moment before which `work_ns` more cannot be done; exact where no process comes or goes.
  uint64_t EarliestEnd(uint64_t now_ns, uint64_t work_ns);

 private:
  class Lock;
  SlotGpu& Of(uint32_t slot) { return slot_->state().file().slots[slot].gpus[gpu_]; }
  GpuLive& live() { return slot_->state().live(gpu_); }
  uint64_t Waiting(uint32_t slot);
  bool MayHaveTurn(uint32_t slot);
  bool Alive(uint32_t slot);
  bool GoOn(uint64_t from_ns);
  bool GiveNext(uint64_t from_ns, uint64_t now_ns);
  void Give(uint32_t slot, uint64_t start_ns, uint64_t most_ns);
  uint64_t Used();

  ProcessSlot* const slot_;
  const uint32_t gpu_;
  uint64_t turn_ = 0;  // the number of the current turn, from 1
  uint64_t used_until_ns_ = 0;
};

}  // namespace tessera::sim
