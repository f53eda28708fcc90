// SPDX-License-Identifier: Apache-2.0
// Charges device memory to one process, so that all processes of the container together never
// exceed the limit of a GPU. Around a call of the driver that allocates:
//
//   Reserve   counts the bytes against the limit, or refuses
//   Add       the driver has allocated: the process holds the bytes until Release
//   Cancel    ends the reservation, after Add or where the driver has refused
//
// Exactness. Reserve first publishes its bytes as pending and then sums what all slots hold and
// reserve. Of two processes that race, the second to publish sees the first, so the sum of all that
// is held never exceeds the limit at any instant. Two that see each other, and would both be
// refused although one of them fits, retry: the one with the lower slot goes first.
//
// Crashes. Every number belongs to one process. A process that is killed between any two
// instructions leaves only numbers of its own slot, which are cleared when its lock is found free
// (slots.h).
//
// Threads: any. No lock is held across a call of the driver. Cost: three atomic additions and one
// pass over the slots in use; no system call unless the limit is reached.
#pragma once

#include <cstdint>

#include "src/limiter/region.h"
#include "src/limiter/spin_lock.h"

namespace tessera::limiter {

class Accounts {
 public:
  // Once in a process, and once more in a child after fork. `limits` and `usage` stay mapped as
  // long as the object lives; `slot` is owned by this process. `sweep` clears the slots of dead
  // processes; it is called before a reservation is refused.
  using Sweep = void (*)();
  void Open(const Limits* limits, Usage* usage, uint32_t slot, Sweep sweep);
  // In place of a slot, for a process that only looks.
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  const Limits& limits() const { return *limits_; }
  // The index of the GPU with this UUID, or -1: nothing is limited on it.
  int Find(const uint8_t (&uuid)[16]) const;

  // False: the container would hold more than its limit; nothing is reserved then.
  bool Reserve(int gpu, uint64_t bytes);
  void Cancel(int gpu, uint64_t bytes);
  // Counts bytes that the driver has allocated, whether or not they were reserved.
  void Add(int gpu, uint64_t bytes);
  void Release(int gpu, uint64_t bytes);
  // Notes for the agent that the program was told that it is out of memory.
  void RecordRefusal(int gpu, uint64_t bytes);

  // What all processes of the container hold on the GPU, with what the agent found unaccounted.
  uint64_t Held(int gpu) const;
  // The same without processes that have ended, for programs that ask how much is left. Makes
  // system calls only where other processes hold some of it.
  uint64_t HeldByLiving(int gpu) const;
  // 0: not limited.
  uint64_t Limit(int gpu) const {
    return limits_->gpus[gpu].memory.load(std::memory_order_relaxed);
  }

 private:
  struct Sums {
    uint64_t held;
    uint64_t held_by_others;
    uint64_t pending;    // of all slots
    bool lower_pending;  // a slot before ours reserves
  };
  Sums Sum(int gpu) const;
  enum class Answer { kFits, kFull, kContended };
  Answer TryReserve(int gpu, uint64_t bytes, bool* yield);
  bool ReserveInTurn(int gpu, uint64_t bytes);
  void RecordPeak(int gpu, uint64_t bytes);

  const Limits* limits_ = nullptr;
  Usage* usage_ = nullptr;
  uint32_t slot_ = 0;
  Sweep sweep_ = nullptr;
  // Lets one thread of this process retry at a time. It is held during the pauses between retries,
  // never across a call of the driver.
  SpinLock turn_;
};

}  // namespace tessera::limiter
