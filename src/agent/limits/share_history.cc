// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/share_history.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::agent {
namespace {

// A part of the sample's time may be from before a change of share or limit: `before` has the
// earlier values.
double ErrorOf(const ShareHistory::ShareSample& sample, const ShareHistory::ShareSample& before) {
  const double limit = std::max(sample.limit, before.limit);
  if (sample.used > limit) return sample.used - limit;
  const double missing =
      std::min({sample.share, sample.limit, before.share, before.limit}) - sample.used;
  return -std::clamp(missing, 0.0, std::max(0.0, sample.waiting));
}

bool IsIdle(const ShareHistory::ShareSample& sample) {
  constexpr double kNothing = 0.001;
  return sample.used < kNothing && sample.waiting < kNothing;
}

}  // namespace

// In the first and the last second of its work, a program can use only a part of its share.
void ShareHistory::Add(MonotonicTime now, const ShareSample& sample) {
  double error = ErrorOf(sample, last_.value_or(sample));
  if (last_ && IsIdle(*last_)) error = std::max(error, 0.0);
  if (IsIdle(sample) && !samples_.empty()) {
    double& before = samples_.back().error;
    before = std::max(before, 0.0);
  }
  samples_.push_back({now, sample.used, error, sample.used_by_driver});
  last_ = sample;
  while (now - samples_.front().at >= kWindow) samples_.pop_front();
}

std::optional<ShareRecord> ShareHistory::Get(MonotonicTime now) const {
  ShareRecord record;
  int count = 0, driver_count = 0;
  double driver_sum = 0;
  for (const TimedShare& sample : samples_) {
    if (now - sample.at >= kWindow) continue;
    ++count;
    record.mean += sample.used;
    driver_sum += sample.used_by_driver.value_or(0);
    driver_count += sample.used_by_driver.has_value();
    if (std::abs(sample.error) > std::abs(record.worst)) record.worst = sample.error;
  }
  if (count == 0) return std::nullopt;
  record.mean /= count;
  if (driver_count > 0) record.mean_by_driver = driver_sum / driver_count;
  return record;
}

void ShareHistories::Update(MonotonicTime now, ContainerUses* uses) {
  std::map<Key, ShareHistory> current;
  for (ContainerGpuUse& use : *uses) {
    if (use.compute_limit == MilliGpu(0)) continue;
    const Key key(use.holder.pod_uid, use.holder.container, use.uuid);
    ShareHistory history = std::move(histories_[key]);
    if (use.compute_use) {
      history.Add(now, {.used = use.compute_use->used,
                        .waiting = use.compute_use->waiting,
                        .share = static_cast<double>(use.compute.count()) / 1000,
                        .limit = static_cast<double>(use.compute_limit.count()) / 1000,
                        .used_by_driver = use.utilization});
    }
    use.share_record = history.Get(now);
    current[key] = std::move(history);
  }
  histories_ = std::move(current);
}

}  // namespace tessera::agent
