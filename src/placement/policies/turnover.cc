// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/turnover.h"

#include <algorithm>
#include <cmath>

#include "src/placement/policies/forecast.h"

namespace tessera::placement {
namespace {

constexpr size_t kSampleSize = 512;
constexpr int64_t kMinWaitArrivals = 64;
// A smaller change does not justify ranking all nodes again.
constexpr double kMinChange = 0.04;
// A smaller fraction of a slot counts as 0.
constexpr double kMinFree = 0.5 / kPartsPerSlot;
// A slot that a pod still holds never counts as more free than this.
constexpr double kMaxFree = 0.9;

}  // namespace

bool Turnover::OnArrival() {
  ++arrivals_;
  if (!pods_leave_ || arrivals_ < sample_due_at_) return false;
  if (!sample_.empty()) {
    const auto gone = std::count_if(sample_.begin(), sample_.end(),
                                    [&](PodId pod) { return cluster_.Find(pod) == nullptr; });
    const double part = static_cast<double>(gone) / static_cast<double>(sample_.size());
    leaving_fraction_ = leaving_fraction_ < 0 ? part : (leaving_fraction_ + part) / 2;
  }
  TakeSample();
  sample_due_at_ =
      arrivals_ + std::max(static_cast<int64_t>(cluster_.pod_count()) / 2, kMinWaitArrivals);
  if (std::abs(std::min(leaving_fraction_, kMaxFree) - table_fraction_) < kMinChange ||
      leaving_fraction_ < 0)
    return false;
  table_fraction_ = std::min(leaving_fraction_, kMaxFree);
  FillTable();
  return true;
}

// Takes every n-th pod of the cluster.
void Turnover::TakeSample() {
  const size_t stride = std::max<size_t>(cluster_.pod_count() / kSampleSize, 1);
  sample_.clear();
  size_t next = 0;  // in the pods of the node
  for (NodeId node = 0; node < cluster_.size(); ++node) {
    const auto pods = cluster_.pods_of(node);
    for (; next < pods.size(); next += stride) sample_.push_back(pods[next]);
    next -= pods.size();
  }
}

// Computes the fraction of capacity that is free after half of the lifetime. It approximates the
// mean over the lifetime.
void Turnover::FillTable() {
  for (size_t i = 0; i < free_.size(); ++i) {
    const double free = std::pow(table_fraction_, static_cast<double>(i) / kStepsPerPod);
    free_[i] = free < kMinFree ? 0 : static_cast<float>(free);
  }
}

}  // namespace tessera::placement
