// SPDX-License-Identifier: Apache-2.0
// The correction of a container's meter by NVML.
#include "src/limiter/compute/arbiter.h"

#include <algorithm>
#include <cmath>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// Correction of the meter by NVML (Utilization): the difference that counts, kernels too long for
// NVML's samples, the steadiness of the load, and the bounds of the correction.
constexpr double kDeadBand = 0.004;  // of the GPU
constexpr int64_t kTooLongToTrim = 150 * kMillisecond;
constexpr double kLeastChange = 0.02;
constexpr double kLeastBias = 0.1, kMostBias = 10;

}  // namespace

// NVML reports old samples in whole percents. So only means over steady seconds are compared, and
// the bias moves a part of the difference.
void Arbiter::Utilization(int64_t now, Id id, double used) {
  Container* const found = Find(id);
  if (found == nullptr) return;
  Container& container = *found;
  Trim& trim = container.trim;
  const double metered =
      double(container.metered - trim.metered) / double(std::max<int64_t>(now - trim.at, 1));
  const bool first = trim.at == 0;
  trim.at = now;
  trim.metered = container.metered;
  if (first) return;
  const auto changed = [](double mean, double value) {
    return std::abs(value - mean) > std::max(kLeastChange, 0.2 * mean);
  };
  if (changed(trim.mean_metered, metered) || changed(trim.mean_nvml, used)) trim.samples = 0;
  ++trim.samples;
  const double weight = trim.samples == 1 ? 1 : 0.5;
  trim.mean_metered += (metered - trim.mean_metered) * weight;
  trim.mean_nvml += (used - trim.mean_nvml) * weight;
  const double biased = trim.mean_metered * container.bias;
  if (trim.samples < 3 || container.longest > kTooLongToTrim || biased < kDeadBand ||
      trim.mean_nvml < kDeadBand ||
      std::abs(trim.mean_nvml - biased) <= std::max(kDeadBand, 0.01 * biased)) {
    return;
  }
  const double ratio = trim.mean_nvml / biased;
  const double power = ratio > 1.3 || ratio < 0.77 ? 0.8 : 0.5;
  container.bias = std::clamp(container.bias * std::pow(ratio, power), kLeastBias, kMostBias);
}

}  // namespace tessera::limiter
