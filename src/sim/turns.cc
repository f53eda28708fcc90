// SPDX-License-Identifier: Apache-2.0
#include "src/sim/turns.h"

#include <sched.h>

#include <algorithm>

namespace tessera::sim {
namespace {

constexpr uint64_t kBusySampleSpacingNs = 50'000'000;
constexpr int kSpinsBeforeCheck = 1000;
// Maximum of turns in one call: 20 s of a GPU. The next call continues.
constexpr int kMaxTurnsPerCall = 10'000;

// Records a sample of the busy time, at most every kBusySampleSpacingNs.
void RecordBusySample(TurnQueue* queue, uint64_t now) {
  const uint64_t count = queue->busy_sample_count.load();
  if (count > 0 &&
      now < queue->busy_samples[(count - 1) % kBusySamples].time_ns.load() + kBusySampleSpacingNs) {
    return;
  }
  BusySample& sample = queue->busy_samples[count % kBusySamples];
  sample.total_ns.store(queue->busy_ns.load());
  sample.until_ns.store(queue->busy_until_ns.load());
  sample.time_ns.store(now);
  queue->busy_sample_count.store(count + 1);
}

// Adds the time from `start` to `end` to the samples of the process, or subtracts it.
void UpdateProcessTimeSamples(SlotGpu* slot_gpu, uint64_t start, uint64_t end, bool added) {
  while (start < end) {
    const uint64_t index = start / kSamplePeriodNs;
    const uint64_t until = std::min(end, (index + 1) * kSamplePeriodNs);
    ProcessTimeSample& sample = slot_gpu->samples[index % kProcessTimeSamples];
    if (sample.index.load() < index) {
      sample.busy_ns.store(0);
      sample.index.store(index);
    }
    const uint64_t busy = sample.busy_ns.load();
    if (sample.index.load() == index) {
      sample.busy_ns.store(added ? busy + (until - start) : busy - (until - start));
    }
    start = until;
  }
}

}  // namespace

class Turns::Lock {
 public:
  explicit Lock(Turns* turns) : word_(turns->queue().lock) {
    const uint32_t own = turns->slot_->index() + 1;
    for (int spins = 1;; ++spins) {
      uint32_t holder = 0;
      if (word_.compare_exchange_weak(holder, own, std::memory_order_acquire)) return;
      // Only one thread of a process locks. So if this slot holds the lock, an earlier process with
      // this slot died while it held the lock.
      const bool stale = holder == own || (spins % kSpinsBeforeCheck == 0 && holder != 0 &&
                                           !turns->IsAlive(holder - 1));
      if (stale && word_.compare_exchange_strong(holder, own, std::memory_order_acquire)) return;
      if (spins % 50 == 0) sched_yield();
    }
  }
  ~Lock() { word_.store(0, std::memory_order_release); }
  Lock(const Lock&) = delete;

 private:
  AtomicU32& word_;
};

bool Turns::IsAlive(uint32_t slot) {
  if (slot == slot_->index()) return true;
  State& state = slot_->state();
  return state.file().slots[slot].claim_id.load() != 0 && state.HolderOf(slot) >= 0;
}

uint64_t Turns::WaitingNs(uint32_t slot) {
  const SlotGpu& slot_gpu = SlotGpuOf(slot);
  if (slot_gpu.instance_plus_1.load() != SlotGpuOf(slot_->index()).instance_plus_1.load()) return 0;
  const uint64_t requested_ns = slot_gpu.requested_ns.load(std::memory_order_acquire);
  const uint64_t turns_ns = slot_gpu.turns_ns.load(std::memory_order_relaxed);
  return requested_ns > turns_ns ? requested_ns - turns_ns : 0;
}

// IsAlive() costs a system call, so it is checked last.
bool Turns::MayHaveTurn(uint32_t slot) {
  const SlotGpu& slot_gpu = SlotGpuOf(slot);
  return WaitingNs(slot) != 0 &&
         slot_gpu.turn_count.load() - slot_gpu.turns_consumed.load() < kTurnRecords &&
         IsAlive(slot);
}

uint64_t Turns::UsedNs() {
  if (turn_number_ == 0) return 0;
  const TurnRecord& turn = SlotGpuOf(slot_->index()).turns[(turn_number_ - 1) % kTurnRecords];
  const uint64_t start = turn.start_ns.load();
  return turn.turns_before_ns.load() + (used_until_ns_ > start ? used_until_ns_ - start : 0);
}

void Turns::Request(uint64_t work_ns, uint64_t wait_start_ns) {
  SlotGpu& own = SlotGpuOf(slot_->index());
  if (WaitingNs(slot_->index()) == 0)
    own.wait_start_ns.store(wait_start_ns, std::memory_order_relaxed);
  own.requested_ns.store(UsedNs() + work_ns, std::memory_order_release);
}

void Turns::RequestMore(uint64_t work_ns, uint64_t wait_start_ns) {
  SlotGpu& own = SlotGpuOf(slot_->index());
  const uint64_t requested_ns = own.requested_ns.load(std::memory_order_relaxed);
  const uint64_t turns_ns = own.turns_ns.load(std::memory_order_relaxed);
  if (requested_ns <= turns_ns) own.wait_start_ns.store(wait_start_ns, std::memory_order_relaxed);
  own.requested_ns.store(std::max(requested_ns, turns_ns) + work_ns, std::memory_order_release);
}

void Turns::GrantTurn(uint32_t slot, uint64_t start_ns, uint64_t max_ns) {
  SlotGpu& slot_gpu = SlotGpuOf(slot);
  TurnQueue& turn_queue = queue();
  const uint64_t length = std::min(WaitingNs(slot), max_ns);
  const uint64_t count = slot_gpu.turn_count.load();
  TurnRecord& last = slot_gpu.turns[(count + kTurnRecords - 1) % kTurnRecords];
  if (count != 0 && last.end_ns.load() == start_ns) {
    last.end_ns.store(start_ns + length);
  } else {
    TurnRecord& turn = slot_gpu.turns[count % kTurnRecords];
    turn.start_ns.store(start_ns);
    turn.end_ns.store(start_ns + length);
    turn.turns_before_ns.store(slot_gpu.turns_ns.load());
    slot_gpu.turn_count.store(count + 1);
  }
  slot_gpu.turns_ns.store(slot_gpu.turns_ns.load() + length);
  UpdateProcessTimeSamples(&slot_gpu, start_ns, start_ns + length, /*added=*/true);
  turn_queue.last_slot_plus_1.store(slot + 1);
  turn_queue.busy_ns.store(turn_queue.busy_ns.load() + length);
  turn_queue.busy_until_ns.store(start_ns + length);
}

// Extends the last turn, if its process still has work and its quantum is not over.
bool Turns::ContinueTurn(uint64_t from_ns) {
  TurnQueue& turn_queue = queue();
  const uint32_t last_slot_plus_1 = turn_queue.last_slot_plus_1.load();
  const uint64_t quantum_end = turn_queue.quantum_start_ns.load() + kQuantumNs;
  if (last_slot_plus_1 == 0 || from_ns >= quantum_end ||
      SlotGpuOf(last_slot_plus_1 - 1).wait_start_ns.load() > from_ns ||
      !MayHaveTurn(last_slot_plus_1 - 1)) {
    return false;
  }
  GrantTurn(last_slot_plus_1 - 1, from_ns, quantum_end - from_ns);
  return true;
}

// Gives a turn to the next process, in the order of slots, that waits at `from_ns`. If none waits,
// gives it to the process that begins to wait first.
bool Turns::StartNextTurn(uint64_t from_ns, uint64_t now_ns) {
  TurnQueue& turn_queue = queue();
  const uint32_t slots = std::min(slot_->state().file().slots_end.load(), kMaxSlots);
  const uint32_t last_slot_plus_1 = turn_queue.last_slot_plus_1.load();
  uint64_t first = now_ns + 1;
  uint32_t next = kMaxSlots;
  for (uint32_t i = 0; i < slots && first > from_ns; ++i) {
    // The process with the last turn comes last.
    const uint32_t slot = (last_slot_plus_1 + i) % slots;
    const uint64_t since = std::max(SlotGpuOf(slot).wait_start_ns.load(), from_ns);
    if (since < first && MayHaveTurn(slot)) first = since, next = slot;
  }
  if (next == kMaxSlots) return false;
  if (last_slot_plus_1 != 0 && next + 1 != last_slot_plus_1 && first == from_ns) first += kSwitchNs;
  turn_queue.quantum_start_ns.store(first);
  GrantTurn(next, first, kQuantumNs);
  return true;
}

bool Turns::Next(uint64_t now_ns, Turn* turn) {
  const Lock lock(this);
  TurnQueue& turn_queue = queue();
  for (int i = 0; i < kMaxTurnsPerCall; ++i) {
    const uint64_t from = turn_queue.busy_until_ns.load();
    if (from > now_ns || (!ContinueTurn(from) && !StartNextTurn(from, now_ns))) break;
  }
  RecordBusySample(&turn_queue, now_ns);

  SlotGpu& own = SlotGpuOf(slot_->index());
  if (turn_number_ != 0) {
    const uint64_t end = own.turns[(turn_number_ - 1) % kTurnRecords].end_ns.load();
    if (end > turn->end_ns) {
      turn->end_ns = end;
      return true;
    }
  }
  if (turn_number_ == own.turn_count.load()) return false;
  const TurnRecord& next = own.turns[turn_number_ % kTurnRecords];
  *turn = {next.start_ns.load(), next.end_ns.load()};
  used_until_ns_ = turn->start_ns;
  // The current turn may still become longer, so it is not consumed yet.
  own.turns_consumed.store(turn_number_++);
  return true;
}

void Turns::GiveBack(Turn* turn, uint64_t at_ns) {
  const Lock lock(this);
  SlotGpu& own = SlotGpuOf(slot_->index());
  TurnQueue& turn_queue = queue();
  if (own.turn_count.load() != turn_number_ ||
      turn_queue.last_slot_plus_1.load() != slot_->index() + 1)
    return;
  TurnRecord& last = own.turns[(turn_number_ - 1) % kTurnRecords];
  const uint64_t end = last.end_ns.load();
  if (at_ns >= end || turn_queue.busy_until_ns.load() != end) return;
  last.end_ns.store(at_ns);
  turn->end_ns = at_ns;
  const uint64_t unused = end - at_ns;
  own.turns_ns.store(own.turns_ns.load() - unused);
  UpdateProcessTimeSamples(&own, at_ns, end, /*added=*/false);
  own.requested_ns.store(own.turns_ns.load());
  turn_queue.busy_ns.store(turn_queue.busy_ns.load() - unused);
  turn_queue.busy_until_ns.store(at_ns);
}

uint64_t Turns::EarliestEnd(uint64_t now_ns, uint64_t work_ns) {
  TurnQueue& turn_queue = queue();
  const uint32_t slots = std::min(slot_->state().file().slots_end.load(), kMaxSlots);
  const uint32_t last_slot_plus_1 = turn_queue.last_slot_plus_1.load();
  const uint64_t until = std::max(turn_queue.busy_until_ns.load(), now_ns);
  const bool my_turn = last_slot_plus_1 == slot_->index() + 1;
  // GPU time of the other processes before the next turn of this process.
  uint64_t others = 0;
  for (uint32_t i = 0; i < slots; ++i) {
    const uint32_t slot = (last_slot_plus_1 + i) % slots;
    if (slot == slot_->index()) {
      if (!my_turn) break;
      continue;
    }
    if (WaitingNs(slot) != 0) others += std::min(WaitingNs(slot), kQuantumNs) + kSwitchNs;
  }
  if (!my_turn) return until + others + work_ns;
  const uint64_t quantum_end = turn_queue.quantum_start_ns.load() + kQuantumNs;
  if (others == 0 || now_ns + work_ns <= std::max(quantum_end, until)) return now_ns + work_ns;
  return now_ns + work_ns + others;
}

}  // namespace tessera::sim
