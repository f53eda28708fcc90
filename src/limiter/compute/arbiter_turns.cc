// SPDX-License-Identifier: Apache-2.0
// Turns of programs that wait for their own launches, and the order of priority classes.
#include "src/limiter/compute/arbiter.h"

#include <algorithm>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// Low classes stay stopped for this time after a high class has launched, or has waited for the
// GPU.
constexpr int64_t kLowStopTime = 5 * kMillisecond;
// A high class waits for a kernel of a stopped low class if it is at most this long, and waits at
// most this long.
constexpr int64_t kMaxAwaitedTime = 4 * kQuantum;
// Window of a high class while a stopped low class still has kernels in flight. Together with a
// slice it is less than a turn.
constexpr int64_t kHighWindow = 800 * kMicrosecond;
// Turns (DecideTurn), in nanoseconds of GPU time. A container gets a turn when it is owed
// kTurnOwedTime. It is owed, or owes, at most kMaxOwedTime, which bounds the effect of turns on the
// shares within a second. Another container takes over the turn if it is owed kTurnLead more.
// kTurnUtilizationMemory is the time constant of `turn_utilization`.
constexpr double kTurnOwedTime = 16e6, kMaxOwedTime = 32e6, kTurnLead = 4e6,
                 kTurnUtilizationMemory = 64e6;
// A container without work for kAbsentTime is not owed more. A container that has had a backlog for
// kSaturatedTime without a break is owed nothing: its pool suffices to keep it busy.
constexpr int64_t kAbsentTime = 200 * kMillisecond, kSaturatedTime = 100 * kMillisecond;
// For kWorkingTime after a launch, a program counts as working. For kAtLimitTime after a wait for
// the limit, it counts as being at its limit.
constexpr int64_t kWorkingTime = 300 * kMicrosecond, kAtLimitTime = 5 * kMillisecond;

}  // namespace

// True: the container has kernels in flight that need several turns of the GPU, and that a high
// class waits for.
bool Arbiter::HasAwaitedKernels(const ContainerState& container) {
  return container.is_low && container.in_flight > 0 && container.longest > kQuantum &&
         container.longest <= kMaxAwaitedTime;
}

// True: the container's own limit has just delayed a launch. `last_limited` is 0 if the limit never
// has.
bool Arbiter::IsAtLimit(int64_t now, const ContainerState& container) {
  return container.last_limited > 0 && now - container.last_limited <= kAtLimitTime;
}

void Arbiter::DecideStops(int64_t now) {
  bool high = false;
  for (const ContainerState& container : containers_) {
    // A high class that waits for its own limit leaves the GPU to the low classes.
    const bool is_recent = now - container.last_activity() < kLowStopTime;
    const bool works = container.in_flight > 0 || (is_recent && !IsAtLimit(now, container));
    high |= works && container.share.priority == PriorityClass::kHigh;
  }
  for (ContainerState& container : containers_) {
    const bool low = container.is_low;
    const uint32_t flags = (low ? kComputeLow : 0) | (low && high ? kComputeStop : 0);
    // At a stop, threads give up the GPU time that they have taken in advance.
    if ((flags & kComputeStop) != 0 && (container.flags & kComputeStop) == 0) {
      ++container.epoch;
      container.stopped_at = now;
    }
    container.flags = flags;
  }
}

// Measures the part of its turns that a container uses. Two ticks of a turn do not count: the
// first, because other containers still run, and the last, because the container then pauses or
// waits for its limit.
void Arbiter::MeasureTurnUtilization(int64_t now, double elapsed, ContainerState* container) {
  const bool works = container->in_flight > 0 || now - container->last_launch < kWorkingTime;
  if (!container->was_alone_in_turn || !works || IsAtLimit(now, *container)) return;
  const double change = double(container->used_since_tick) - container->turn_utilization * elapsed;
  container->turn_utilization =
      std::clamp(container->turn_utilization + change / kTurnUtilizationMemory, 0.0, 1.0);
}

// Adds to `owed_time` the GPU time that each container was entitled to since the last tick, by
// weight and within its limit, minus the time that it used. In its own turn, a container is
// entitled only to the time that it can use. Otherwise the turn of a container with a large share
// that leaves the GPU idle between its launches would never end.
void Arbiter::UpdateOwedTime(int64_t now) {
  const double elapsed = Elapsed(now);
  double weights = 0, rest = 1;
  int64_t in_flight = 0;  // of containers without a turn
  for (ContainerState& container : containers_) {
    if (container.id != turn_holder_) in_flight += container.in_flight;
    container.is_present = container.is_known && !container.is_stopped &&
                           now - container.last_activity() <= kAbsentTime;
    if (container.is_present) weights += container.weight;
  }
  // Starts with the containers that reach their limits first; the others divide what these leave.
  for (ContainerState* container : by_limit_) {
    if (!container->is_present) continue;
    const double part =
        std::min(container->limit, rest * container->weight / std::max(weights, 1e-9));
    rest -= part;
    weights -= container->weight;
    const auto used = double(container->used_since_tick);
    // A container that leaves the GPU idle in its turn is charged for at least half of the time.
    const bool alone = container->has_turn && in_flight < kDrained;
    if (alone) MeasureTurnUtilization(now, elapsed, container);
    container->was_alone_in_turn = alone;
    container->owed_time += part * elapsed * (alone ? container->turn_utilization : 1);
    container->owed_time -= alone ? std::max(used, elapsed / 2) : used;
    if (now - container->last_denied > BacklogMemory()) container->last_without_backlog = now;
    const bool gains =
        !IsAtLimit(now, *container) && now - container->last_without_backlog < kSaturatedTime;
    container->owed_time =
        std::clamp(container->owed_time, -kMaxOwedTime, gains ? kMaxOwedTime : 0);
  }
}

// A program that waits for its own launches gets one batch in each round of the driver's turns,
// which is little beside many processes or long kernels. Once its container is owed enough, the
// container gets a turn: other containers launch nothing until it has used the owed time. The pools
// alone would not stop containers that are ahead of their share: if a launch was shorter than its
// price, the difference returns to the pool, and another launch of 10 ms may begin.
void Arbiter::DecideTurn(int64_t now) {
  ContainerState* holder = nullptr;
  ContainerState* next = nullptr;
  for (ContainerState& container : containers_) {
    container.is_held = container.has_turn = false;
    const bool works = container.in_flight > 0 || now - container.last_launch < kWorkingTime ||
                       now - container.last_wait < tick_interval_;
    if (!works || container.is_stopped || container.owed_time <= 0) continue;
    if (container.id == turn_holder_) holder = &container;
    if (container.owed_time > kTurnOwedTime &&
        (next == nullptr || container.owed_time > next->owed_time)) {
      next = &container;
    }
  }
  if (next != nullptr && (holder == nullptr || next->owed_time > holder->owed_time + kTurnLead)) {
    holder = next;
    turn_holder_ = next->id;
  }
  if (holder == nullptr) {
    turn_holder_ = kNoTurn;
    return;
  }
  holder->has_turn = true;
  holder->pool = std::max(holder->pool, holder->charged + int64_t(holder->owed_time));
  for (ContainerState& container : containers_) {
    container.is_held = &container != holder && !container.is_idle && !container.is_stopped;
    if (container.is_held) container.held_until = now + BacklogMemory();
  }
}

// A low-class kernel that needs several turns of the GPU alternates with turns of the high class.
// The kernel ends sooner if the high class has little work in flight when the low class is stopped
// (WindowOfHighClass), and launches nothing until the kernel ends.
void Arbiter::HoldHighClasses(int64_t now) {
  const auto is_awaited = [now](const ContainerState& container) {
    return container.is_stopped && HasAwaitedKernels(container) &&
           now - container.stopped_at < kMaxAwaitedTime;
  };
  const bool awaits = std::ranges::any_of(containers_, is_awaited);
  for (ContainerState& container : containers_) {
    container.waits_for_low_class = awaits && container.share.priority == PriorityClass::kHigh;
    if (container.waits_for_low_class) container.held_until = now + BacklogMemory();
  }
}

int64_t Arbiter::WindowOfHighClass(int64_t window) const {
  return std::ranges::any_of(containers_, HasAwaitedKernels) ? std::min(kHighWindow, window)
                                                             : window;
}

}  // namespace tessera::limiter
