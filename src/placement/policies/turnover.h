// SPDX-License-Identifier: Apache-2.0
// Measures how soon running pods leave: takes a sample of them, and counts half a pod lifetime
// later how many are left. One lifetime is as many arrivals as there are pods (Little's law). The
// mean lifetime would mislead, because lifetimes differ widely. Most of the pods that arrive in an
// hour leave within the next hour, but most of the pods that run at an instant stay.
//
// Does not predict when a particular pod leaves. Threads: one. Cost: one pass over the nodes and a
// few hundred pods, twice in a lifetime. Included only in src/placement.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "src/placement/cluster.h"

namespace tessera::placement {

class Turnover {
 public:
  explicit Turnover(const Cluster& cluster) : cluster_(cluster) { FillTable(); }

  // Call when a pod arrives. Returns true if the values of FreeOf have changed.
  bool OnArrival();
  // Call when a pod leaves. Before the first departure no pod is expected to leave.
  void OnDeparture() { pods_leave_ = true; }

  // False while FreeOf(pods) is 0 for all pods > 0.
  bool expects_departures() const { return table_fraction_ > 0; }
  // Expected fraction of the next pod lifetime for which the capacity held by `pods` running pods
  // is free: 1 for none, 0 for more than a few.
  float FreeOf(float pods) const {
    const auto at = static_cast<size_t>(pods * kStepsPerPod + 0.999f);
    return at < free_.size() ? free_[at] : 0;
  }

 private:
  static constexpr int kStepsPerPod = 8;

  void TakeSample();
  void FillTable();

  const Cluster& cluster_;
  bool pods_leave_ = false;
  int64_t arrivals_ = 0;       // so far
  int64_t sample_due_at_ = 0;  // the arrival at which to count the sample
  std::vector<PodId> sample_;
  // Fraction of pods that leave within half a lifetime; negative: unknown.
  double leaving_fraction_ = -1;
  double table_fraction_ = 0;  // the fraction in `free_`
  std::array<float, 8 * kStepsPerPod> free_{};
};

}  // namespace tessera::placement
