// SPDX-License-Identifier: Apache-2.0
// The GPU time that each container may launch until the next tick.
#include "src/limiter/compute/arbiter.h"

#include <algorithm>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// The lead of a container is the GPU time that it may use in advance: its pool minus its charges.
// kHalfLead is half of the lead of all containers together, and at least two ticks.
constexpr int64_t kHalfLead = 4 * kMillisecond;
constexpr int64_t kMinLead = kMillisecond;  // minimum of MaxLead
// A container that has used more than its share has a debt. This is the maximum debt of a container
// without work.
constexpr int64_t kMaxDebt = 20 * kMillisecond;

}  // namespace

int64_t Arbiter::MaxLead(const ContainerState& container, double weights) const {
  return std::max(kMinLead, int64_t(2 * double(kHalfLead) * container.weight / weights));
}

double Arbiter::Elapsed(int64_t now) const {
  return last_tick_ == 0 ? 0 : double(std::min<int64_t>(now - last_tick_, kLease));
}

// The GPU time since the last tick that containers with a backlog may use.
double Arbiter::Budget(int64_t now) const {
  double budget = Elapsed(now);
  for (const ContainerState& container : containers_) {
    if (container.is_below_share) budget -= double(container.used_since_tick);
  }
  return std::max(budget, 0.0);
}

void Arbiter::DecidePools(int64_t now) {
  double weights = 0;
  for (ContainerState& container : containers_) {
    container.is_idle |= !container.is_known;
    if (!container.is_idle && (container.flags & kComputeStop) == 0) weights += container.weight;
  }
  weights = std::max(weights, 1e-6);
  int active = 0;
  int64_t in_flight = 0;
  for (ContainerState& container : containers_) {
    const int64_t lead = container.pool - container.charged, max_lead = MaxLead(container, weights);
    const bool backlog = now - container.last_denied < BacklogMemory();
    // A container whose limit is at most its weight gets its whole share when it is at its limit,
    // so its unused lead must not hold back the pools of the others. While long kernels are in use,
    // its lead must hold them back: long kernels delay the container, which then makes up for the
    // delay and is at its limit for only a moment.
    const bool at_hard_limit =
        !has_long_work_ && container.limit <= container.weight && IsAtLimit(now, container);
    container.is_below_share =
        container.is_idle || at_hard_limit || (lead >= max_lead * 3 / 4 && !backlog);
    // A stopped container keeps its pool, and its pool grows again after the stop.
    container.is_stopped = (container.flags & kComputeStop) != 0;
    active += !container.is_idle && !container.is_stopped;
    in_flight += container.in_flight;
  }
  const double budget = Budget(now);
  double backlog_weights = 0, max_per_weight = 1e18, needed_per_weight = 1e18;
  for (const ContainerState& container : containers_) {
    if (container.is_below_share || container.is_stopped) continue;
    backlog_weights += container.weight;
    const auto lead = double(container.pool - container.charged),
               max_lead = double(MaxLead(container, weights));
    if (lead > 0)
      max_per_weight = std::min(max_per_weight, std::max(0.0, max_lead - lead) / container.weight);
    if (lead <= 0)
      needed_per_weight = std::min(needed_per_weight, (max_lead / 2 - lead) / container.weight);
  }
  double per_weight = backlog_weights > 0 ? std::min(budget / backlog_weights, max_per_weight) : 0;
  const bool drains = in_flight < (active <= 1 ? kHalfLead : kDrained);
  if (drains && turn_holder_ == kNoTurn && needed_per_weight < 1e18)
    per_weight = std::max(per_weight, needed_per_weight);
  for (ContainerState& container : containers_) {
    if (container.is_below_share) {
      const int64_t full = container.charged + MaxLead(container, weights);
      container.pool =
          container.is_idle
              ? std::min(full, PoolAfterDebtRepayment(container, Elapsed(now), weights))
              : full;
    } else if (!container.is_stopped) {
      container.pool += int64_t(per_weight * container.weight);
    }
  }
}

// The pool of a container without work, whose share of the elapsed time repays its debt.
int64_t Arbiter::PoolAfterDebtRepayment(const ContainerState& container, double elapsed,
                                        double weights) const {
  const double share = container.weight / (weights + container.weight);
  return std::max(container.pool, container.charged - kMaxDebt) + int64_t(share * elapsed);
}

}  // namespace tessera::limiter
