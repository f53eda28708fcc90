// SPDX-License-Identifier: Apache-2.0
// The container's budget of device memory on each GPU. Charges memory to one process, so that all
// processes of the container together never exceed the limit of the GPU. The caller of a driver
// function that allocates calls:
//
//   Reserve   before the driver: counts the bytes against the limit, or refuses them
//   Add       after the driver has allocated: the process holds the bytes until Release
//   Cancel    after Add, or after the driver has refused: ends the reservation
//
// For an allocation whose size is known before the call, Hold does all three with one atomic
// addition if there is room. If the driver then refuses, Release removes the bytes.
//
// Exactness. Reserve first publishes its bytes as pending and then sums the held and pending bytes
// of all slots. If two processes race, the second to publish sees the bytes of the first, so the
// bytes that the driver has allocated never exceed the limit at any instant. Hold publishes its
// bytes as held at once. If they do not fit, it withdraws them and calls Reserve. So if two
// processes see the same room, the held bytes may exceed the limit for an instant, but the driver
// is called only for bytes that fit. If two processes see each other's bytes, both may fail
// although there is room for one of them. So both retry, and the process with the lower slot goes
// first.
//
// Crashes. Every number belongs to one process. A process that is killed between any two
// instructions leaves numbers only in its own slot. Another process clears them when it finds the
// lock of the slot free (slots.h).
//
// Threads: any. No lock is held across a call of the driver. Cost of a reservation: three atomic
// additions and one pass over the slots in use. Cost of Hold: one addition and two passes. No
// system call unless the limit is reached.
#pragma once

#include <cstdint>

#include "src/limiter/region.h"
#include "src/limiter/region/spin_lock.h"

namespace tessera::limiter {

class MemoryBudget {
 public:
  // Called once in a process, and again in a child after fork. `limits`, `usage` and `usage_path`
  // outlive the object; this process owns `slot`. Reserve clears the slots of dead processes before
  // it refuses, unless `usage_path` is null.
  void Open(const Limits* limits, Usage* usage, uint32_t slot, const char* usage_path);
  // The slot of a process that only reads.
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  const Limits& limits() const { return *limits_; }

  // False: the container would exceed its limit; nothing is reserved.
  bool Reserve(int gpu, uint64_t bytes);
  void Cancel(int gpu, uint64_t bytes);
  // Reserve, Add and Cancel. False: the container would exceed its limit; nothing is charged.
  bool Hold(int gpu, uint64_t bytes);
  // Charges bytes that the driver has allocated, with or without a reservation.
  void Add(int gpu, uint64_t bytes);
  void Release(int gpu, uint64_t bytes);
  // Records for the agent that an allocation was refused.
  void RecordRefusal(int gpu, uint64_t bytes);

  // Bytes that all processes of the container hold on the GPU, unaccounted bytes included.
  uint64_t HeldBytes(int gpu) const;
  // Like HeldBytes, but first clears the slots of dead processes. Makes system calls only if other
  // processes hold memory.
  uint64_t HeldBytesAfterSweep(int gpu) const;
  // 0: not limited.
  uint64_t Limit(int gpu) const {
    return limits_->gpus[gpu].memory.load(std::memory_order_relaxed);
  }

 private:
  struct UsageSums {
    uint64_t held;
    uint64_t held_by_others;  // memory shared with this process included
    uint64_t pending;         // sum over all slots
    bool lower_slot_pending;  // a slot with a lower index has pending bytes
  };
  UsageSums SumUsage(int gpu) const;
  // Counts memory that several processes share once for each of them.
  UsageSums SumUsageWithDuplicates(int gpu) const;
  bool TryHold(int gpu, uint64_t bytes);
  enum class ReserveResult { kFits, kFull, kContended };
  ReserveResult TryReserve(int gpu, uint64_t bytes, bool* must_yield);
  bool ReserveInTurn(int gpu, uint64_t bytes);
  void RecordPeak(int gpu, uint64_t bytes);

  const Limits* limits_ = nullptr;
  Usage* usage_ = nullptr;
  uint32_t slot_ = 0;
  const char* usage_path_ = nullptr;
  // Admits one thread of this process at a time to the retries. It is held during the pauses
  // between retries, never across a driver call.
  SpinLock retry_lock_;
};

}  // namespace tessera::limiter
