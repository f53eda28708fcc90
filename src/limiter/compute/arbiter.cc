// SPDX-License-Identifier: Apache-2.0
// The containers of the Arbiter, its tick, and the lines that it writes. The decisions of a tick
// are in arbiter_readings.cc, arbiter_pools.cc, arbiter_turns.cc and arbiter_trim.cc.
#include "src/limiter/compute/arbiter.h"

#include <algorithm>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// Time between two ticks: while containers contend, and while a low class may have to stop. The low
// class must leave the GPU within 10 ms, so the stop must be decided much sooner.
constexpr int64_t kTick = 2 * kMillisecond, kStopTick = kMillisecond / 2;
// Replaces kTick while more than kManyContainers containers contend. Each container then uses less
// GPU time in a tick, so its share is as exact as with kTick.
constexpr int64_t kManyContainersTick = 3 * kMillisecond;
constexpr int kManyContainers = 8;
// A container that launched within this time may launch again soon. Ticks must then be frequent
// enough to observe its turns.
constexpr int64_t kRecentTime = kSecond;
// Time between two ticks while one container is alone, and while no container is active.
constexpr int64_t kAloneTick = 8 * kMillisecond, kIdleTick = 16 * kMillisecond;
// A container that has launched nothing for this time is read only every kIdleTick.
constexpr int64_t kAsleepTime = 100 * kMillisecond;
// Minimum window of a process; at least two slices. Windows shrink as the number of containers
// grows, so that a program that waits for its own launches waits less for other containers.
constexpr int64_t kMinWindow = 800 * kMicrosecond;
// A wait that ended at most this long before the last tick still proves a backlog: the pause may
// have begun just before that tick.
constexpr int64_t kLongestPause = kMillisecond;
uint32_t ToQ16(double value) { return uint32_t(std::clamp(value, 0.0, 1000.0) * double(kOne)); }

}  // namespace

const Arbiter::ContainerState* Arbiter::Find(Id id) const {
  const auto at = std::ranges::lower_bound(containers_, id, {}, &ContainerState::id);
  return at != containers_.end() && at->id == id ? &*at : nullptr;
}

void Arbiter::Set(Id id, const ComputeShare& share) {
  ContainerState* container = Find(id);
  if (container != nullptr && container->share == share) return;
  if (container != nullptr) {
    container->share = share;
    ++container->epoch;
  } else {
    const auto at = std::ranges::lower_bound(containers_, id, {}, &ContainerState::id);
    containers_.insert(at, ContainerState{.id = id, .share = share});
  }
  DecideWeights();
}

void Arbiter::Remove(Id id) {
  std::erase_if(containers_, [id](const ContainerState& container) { return container.id == id; });
  DecideWeights();
}

// Containers without a request divide the GPU time that requests leave.
void Arbiter::DecideWeights() {
  double requested = 0, weights = 0;
  bool has_low_request = false;
  for (const ContainerState& container : containers_) {
    requested += container.share.request;
    has_low_request |=
        container.share.request > 0 && container.share.priority == PriorityClass::kLow;
    if (container.share.request <= 0) weights += container.share.weight;
  }
  const double rest = std::max(0.01, 1 - requested);
  by_limit_.clear();
  for (ContainerState& container : containers_) {
    const ComputeShare& share = container.share;
    container.weight =
        share.request > 0 ? share.request : rest * share.weight / std::max(weights, 1e-9);
    container.limit = share.limit > 0 ? share.limit : 1;
    container.is_low =
        share.priority == PriorityClass::kLow ||
        (has_low_request && share.request <= 0 && share.priority == PriorityClass::kNormal);
    by_limit_.push_back(&container);
  }
  std::ranges::stable_sort(by_limit_, {}, [](const ContainerState* container) {
    return container->limit / container->weight;
  });
}

void Arbiter::WriteDivision(int64_t now) {
  division_.allowances.clear();
  division_.parts.clear();
  int64_t active = 0;
  for (const ContainerState& container : containers_) active += !container.is_idle;
  const int64_t window = std::clamp(kWindow / std::max<int64_t>(active, 1), kMinWindow, kWindow);
  const int64_t high_window = WindowOfHighClass(window);
  for (ContainerState& container : containers_) {
    const ComputeShare& share = container.share;
    const bool is_high = share.priority == PriorityClass::kHigh;
    const bool stops =
        container.waits_for_low_class || (container.is_held && container.owed_time < 0);
    division_.allowances.push_back(
        {.id = container.id,
         .epoch = container.epoch,
         .flags = container.flags | (stops ? kComputeStop : 0),
         .bias = ToQ16(container.bias_estimate().bias),
         .cap = ToQ16(share.limit),
         .floor = ToQ16(container.weight),
         .window_us = uint32_t((is_high ? high_window : window) / kMicrosecond),
         .pool = container.is_held ? std::min(container.pool, container.charged) : container.pool,
         .lease_end = now + kLease});
    for (const ProcessState& process : container.processes) {
      division_.parts.push_back(
          {.id = container.id,
           .slot = process.slot,
           .part = ToQ16(process.part),
           .processes = uint32_t(active_processes_ + (process.is_active ? 0 : 1)),
           .part_integral = process.part_integral,
           .at = process.part_integral_at});
    }
  }
}

int64_t Arbiter::BacklogMemory() const { return tick_interval_ + kLongestPause; }

int64_t Arbiter::NextTick(int64_t now) {
  bool high = false, low = false;
  int active = 0;
  for (const ContainerState& container : containers_) {
    high |= container.share.priority == PriorityClass::kHigh;
    low |= container.is_low && container.in_flight > 0;
    active += container.is_known && now - container.last_launch < kRecentTime;
  }
  tick_interval_ = active > kManyContainers ? kManyContainersTick : kTick;
  if (high && low) return kStopTick;
  return active > 1 ? tick_interval_ : active == 1 ? kAloneTick : kIdleTick;
}

const Arbiter::Division& Arbiter::Tick(int64_t now, std::span<const ContainerReading> readings) {
  for (ContainerState& container : containers_) container.used_since_tick = 0;
  for (const ContainerReading& reading : readings) ReadContainer(now, reading);
  DecideParts(now);
  DecideStops(now);
  DecidePools(now);
  UpdateOwedTime(now);
  DecideTurn(now);
  HoldHighClasses(now);
  WriteDivision(now);
  last_tick_ = now;
  // Ticks of all arbiters fall on one grid, so that one wake-up of the agent serves all GPUs.
  const int64_t interval = NextTick(now);
  division_.next_tick = (now + interval) / interval * interval;
  return division_;
}

bool Arbiter::IsDue(int64_t now, Id id) const {
  const ContainerState* const found = Find(id);
  if (found == nullptr) return false;
  const ContainerState& container = *found;
  return !container.is_known || container.in_flight > 0 ||
         now - container.last_activity() < kAsleepTime ||
         container.share.priority == PriorityClass::kHigh || now - container.read_at >= kIdleTick;
}

// The epoch is stored last: a thread that reads a new epoch also reads the other new values.
void WriteAllowance(const Arbiter::Allowance& allowance, ComputeLimit* line) {
  line->flags.store(allowance.flags, kRelaxed);
  line->pool.store(allowance.pool, kRelaxed);
  line->bias.store(allowance.bias, kRelaxed);
  line->cap.store(allowance.cap, kRelaxed);
  line->floor.store(allowance.floor, kRelaxed);
  line->window_us.store(allowance.window_us, kRelaxed);
  line->lease_end.store(allowance.lease_end, std::memory_order_release);
  line->epoch.store(allowance.epoch, std::memory_order_release);
}

// Each store is ordered after the odd sequence number. ThreadSanitizer does not support fences.
void WritePart(const Arbiter::ProcessPart& part, ComputePart* line) {
  constexpr auto kRelease = std::memory_order_release;
  const uint32_t sequence = line->sequence.load(kRelaxed) | 1;
  line->sequence.store(sequence, kRelaxed);
  line->part.store(part.part, kRelease);
  line->part_integral.store(part.part_integral, kRelease);
  line->at.store(part.at, kRelease);
  line->contended.store(part.processes > 1, kRelease);
  line->processes.store(part.processes, kRelease);
  line->sequence.store(sequence + 1, kRelease);
}

}  // namespace tessera::limiter
