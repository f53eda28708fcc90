// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/memory_budget.h"

#include <sched.h>
#include <time.h>

#include "src/limiter/region/shared_pieces.h"
#include "src/limiter/region/slots.h"

namespace tessera::limiter {
namespace {

// A reservation that races with others is retried in rounds, with a pause after each round, because
// another process may be interrupted between two steps. The first round and every tenth round after
// it clear the slots of dead processes.
constexpr int kTriesPerRound = 100;
constexpr int kRounds = 1000;
constexpr int kRoundsPerSweep = 10;
// The kernel ends a sleep late, so a round takes about 0.2 ms, and all rounds about 0.2 s.
constexpr timespec kPause = {0, 100'000};
// A sum that is read while other processes free and allocate may be too large. So a request is
// refused only after this many successive attempts found no room. Together the attempts take about
// 20 us. Other processes run between them.
constexpr int kFullResultsBeforeRefusal = 16;

}  // namespace

void MemoryBudget::Open(const Limits* limits, Usage* usage, uint32_t slot, const char* usage_path) {
  limits_ = limits;
  usage_ = usage;
  slot_ = slot;
  usage_path_ = usage_path;
  retry_lock_.Reset();
}

// A process adds to `held` before it subtracts from `pending`. So this function reads `pending`
// first: bytes that move meanwhile are counted twice, and never missed.
MemoryBudget::UsageSums MemoryBudget::SumUsageWithDuplicates(int gpu) const {
  const GpuUsage& gpu_usage = usage_->gpus[gpu];
  UsageSums sums{limits_->gpus[gpu].unaccounted.load(kRelaxed), 0, 0, false};
  uint32_t slots = usage_->slots_end.load();
  if (slots > kMaxSlots) slots = kMaxSlots;
  for (uint32_t i = 0; i < slots; ++i) {
    const uint64_t pending = gpu_usage.pending[i].load();
    sums.pending += pending;
    sums.lower_slot_pending |= pending != 0 && i < slot_;
    const uint64_t held = gpu_usage.held[i].load();
    sums.held += held;
    if (i != slot_) sums.held_by_others += held;
  }
  return sums;
}

// A process that leaves a shared piece (shared_pieces.h) increments `piece_departures` before it
// subtracts the bytes of the piece from its slot. So if `piece_departures` has not changed during
// the sum, all bytes that the table reports as held twice are still in the slots.
MemoryBudget::UsageSums MemoryBudget::SumUsage(int gpu) const {
  const uint32_t departures = usage_->piece_departures.load();
  const uint64_t duplicates = DuplicateBytes(*usage_, gpu);
  UsageSums sums = SumUsageWithDuplicates(gpu);
  if (duplicates == 0 || usage_->piece_departures.load() != departures) return sums;
  sums.held -= duplicates < sums.held ? duplicates : sums.held;
  return sums;
}

MemoryBudget::ReserveResult MemoryBudget::TryReserve(int gpu, uint64_t bytes, bool* must_yield) {
  const uint64_t limit = Limit(gpu) != 0 ? Limit(gpu) : UINT64_MAX;
  if (bytes > limit) return ReserveResult::kFull;
  usage_->gpus[gpu].pending[slot_].fetch_add(bytes);
  const UsageSums sums = SumUsage(gpu);
  if (sums.held <= limit && sums.pending <= limit - sums.held) {
    RecordPeak(gpu, sums.held + sums.pending);
    return ReserveResult::kFits;
  }
  Cancel(gpu, bytes);
  if (sums.held > limit || bytes > limit - sums.held) return ReserveResult::kFull;
  *must_yield = sums.lower_slot_pending;
  return ReserveResult::kContended;
}

bool MemoryBudget::Reserve(int gpu, uint64_t bytes) {
  bool must_yield = false;
  if (TryReserve(gpu, bytes, &must_yield) == ReserveResult::kFits) return true;
  return ReserveInTurn(gpu, bytes);
}

// Checks for room before it adds to `held`: bytes in `held` that do not fit would make other
// processes fail.
bool MemoryBudget::TryHold(int gpu, uint64_t bytes) {
  const uint64_t limit = Limit(gpu) != 0 ? Limit(gpu) : UINT64_MAX;
  const UsageSums before = SumUsage(gpu);
  const uint64_t taken = before.held + before.pending;
  if (taken > limit || bytes > limit - taken) return false;
  std::atomic<uint64_t>& held = usage_->gpus[gpu].held[slot_];
  held.fetch_add(bytes);
  const UsageSums sums = SumUsage(gpu);
  if (sums.held <= limit && sums.pending <= limit - sums.held) {
    RecordPeak(gpu, sums.held + sums.pending);
    return true;
  }
  held.fetch_sub(bytes);
  return false;
}

bool MemoryBudget::Hold(int gpu, uint64_t bytes) {
  if (TryHold(gpu, bytes)) return true;
  if (!Reserve(gpu, bytes)) return false;
  Add(gpu, bytes);
  Cancel(gpu, bytes);
  return true;
}

// One thread of each process at a time retries, so that the order of the slots decides which
// process goes first.
bool MemoryBudget::ReserveInTurn(int gpu, uint64_t bytes) {
  const SpinGuard guard(&retry_lock_);
  int full_results = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (usage_path_ != nullptr && round % kRoundsPerSweep == 0) SweepSlots(usage_path_, usage_);
    for (int tries = 0; tries < kTriesPerRound; ++tries) {
      bool must_yield = false;
      const ReserveResult result = TryReserve(gpu, bytes, &must_yield);
      if (result == ReserveResult::kFits) return true;
      full_results = result == ReserveResult::kFull ? full_results + 1 : 0;
      if (full_results == kFullResultsBeforeRefusal) return false;
      // The process with the lowest slot retries at once; the other processes yield.
      if (must_yield || result == ReserveResult::kFull) ::sched_yield();
    }
    ::nanosleep(&kPause, nullptr);
  }
  return false;
}

void MemoryBudget::Cancel(int gpu, uint64_t bytes) {
  usage_->gpus[gpu].pending[slot_].fetch_sub(bytes);
}

void MemoryBudget::Release(int gpu, uint64_t bytes) {
  usage_->gpus[gpu].held[slot_].fetch_sub(bytes);
}

void MemoryBudget::Add(int gpu, uint64_t bytes) { usage_->gpus[gpu].held[slot_].fetch_add(bytes); }

uint64_t MemoryBudget::HeldBytes(int gpu) const { return SumUsage(gpu).held; }

uint64_t MemoryBudget::HeldBytesAfterSweep(int gpu) const {
  const UsageSums sums = SumUsage(gpu);
  if (usage_path_ == nullptr || sums.held_by_others == 0) return sums.held;
  SweepSlots(usage_path_, usage_);
  return HeldBytes(gpu);
}

void MemoryBudget::RecordPeak(int gpu, uint64_t bytes) {
  std::atomic<uint64_t>& peak = usage_->gpus[gpu].peak;
  uint64_t seen = peak.load(kRelaxed);
  while (bytes > seen && !peak.compare_exchange_weak(seen, bytes, kRelaxed)) {
  }
}

void MemoryBudget::RecordRefusal(int gpu, uint64_t bytes) {
  usage_->gpus[gpu].refused_bytes.store(bytes, kRelaxed);
  usage_->gpus[gpu].refused.fetch_add(1, kRelaxed);
}

}  // namespace tessera::limiter
