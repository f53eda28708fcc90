// SPDX-License-Identifier: Apache-2.0
// The GPU time that each container may launch until the next tick.
#include "src/limiter/compute/arbiter.h"

#include <algorithm>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// Half of the GPU time that a container may hold in advance; at least two ticks.
constexpr int64_t kLead = 4 * kMillisecond;
constexpr int64_t kMinCap = kMillisecond;
// Maximum debt of a container without work for use beyond its share.
constexpr int64_t kMaxDebt = 20 * kMillisecond;

}  // namespace

int64_t Arbiter::CapOf(const ContainerState& container, double weights) const {
  return std::max(kMinCap, int64_t(2 * double(kLead) * container.weight / weights));
}

double Arbiter::Elapsed(int64_t now) const {
  return last_tick_ == 0 ? 0 : double(std::min<int64_t>(now - last_tick_, kLease));
}

// The GPU time since the last tick that containers with a backlog may use.
double Arbiter::Budget(int64_t now) const {
  double budget = Elapsed(now);
  for (const ContainerState& container : containers_) {
    if (container.below_share) budget -= double(container.used);
  }
  return std::max(budget, 0.0);
}

void Arbiter::DecidePools(int64_t now) {
  double weights = 0;
  for (ContainerState& container : containers_) {
    container.idle |= !container.known;
    if (!container.idle && (container.flags & kComputeStop) == 0) weights += container.weight;
  }
  weights = std::max(weights, 1e-6);
  int active = 0;
  int64_t in_flight = 0;
  for (ContainerState& container : containers_) {
    const int64_t head = container.pool - container.charged, cap = CapOf(container, weights);
    const bool backlog = now - container.last_denied < Backlog();
    container.below_share = container.idle || (head >= cap * 3 / 4 && !backlog);
    // A stopped container keeps its pool, and its pool grows again after the stop.
    container.stopped = (container.flags & kComputeStop) != 0;
    active += !container.idle && !container.stopped;
    in_flight += container.in_flight;
  }
  const double budget = Budget(now);
  double heavy = 0, most = 1e18, needed = 1e18;
  for (const ContainerState& container : containers_) {
    if (container.below_share || container.stopped) continue;
    heavy += container.weight;
    const auto head = double(container.pool - container.charged),
               cap = double(CapOf(container, weights));
    if (head > 0) most = std::min(most, std::max(0.0, cap - head) / container.weight);
    if (head <= 0) needed = std::min(needed, (cap / 2 - head) / container.weight);
  }
  double each = heavy > 0 ? std::min(budget / heavy, most) : 0;
  const bool drains = in_flight < (active <= 1 ? kLead : kDrained);
  if (drains && turn_ == kNoTurn && needed < 1e18) each = std::max(each, needed);
  for (ContainerState& container : containers_) {
    if (container.below_share) {
      const int64_t full = container.charged + CapOf(container, weights);
      container.pool =
          container.idle ? std::min(full, PoolAfterDebtRepayment(container, Elapsed(now), weights))
                         : full;
    } else if (!container.stopped) {
      container.pool += int64_t(each * container.weight);
    }
  }
}

// The pool of a container without work: its share of the elapsed time repays its debt.
int64_t Arbiter::PoolAfterDebtRepayment(const ContainerState& container, double elapsed,
                                        double weights) const {
  const double share = container.weight / (weights + container.weight);
  return std::max(container.pool, container.charged - kMaxDebt) + int64_t(share * elapsed);
}

}  // namespace tessera::limiter
