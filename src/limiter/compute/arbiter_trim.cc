// SPDX-License-Identifier: Apache-2.0
// Corrects the metered GPU time of a container by NVML's measure.
#include "src/limiter/compute/arbiter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// Smaller differences than kDeadBand are ignored. Containers with launches longer than
// kTooLongToTrim are not corrected. A change of the load by more than kMinChange restarts the
// averages.
constexpr double kDeadBand = 0.004;  // of the GPU
constexpr int64_t kTooLongToTrim = 150 * kMillisecond;
constexpr double kMinChange = 0.02;
// The correction for times beside other containers needs at least this much use beside them,
// relative to the use alone.
constexpr double kMinBeside = 0.25;
constexpr double kMinBias = 0.1, kMaxBias = 10;

}  // namespace

// NVML reports old samples in whole percents. So only means over steady seconds are compared, and
// each comparison corrects only a part of the difference.
void Arbiter::Correct(double metered, double used, Trim* trim) {
  const auto changed = [](double mean, double value) {
    return std::abs(value - mean) > std::max(kMinChange, 0.2 * mean);
  };
  if (changed(trim->mean_metered, metered) || changed(trim->mean_nvml, used)) trim->samples = 0;
  ++trim->samples;
  const double weight = trim->samples == 1 ? 1 : 0.5;
  trim->mean_metered += (metered - trim->mean_metered) * weight;
  trim->mean_nvml += (used - trim->mean_nvml) * weight;
  const double biased = trim->mean_metered * trim->bias;
  if (trim->samples < 3 || biased < kDeadBand || trim->mean_nvml < kDeadBand ||
      std::abs(trim->mean_nvml - biased) <= std::max(kDeadBand, 0.01 * biased)) {
    return;
  }
  const double ratio = trim->mean_nvml / biased;
  const double power = ratio > 1.3 || ratio < 0.77 ? 0.8 : 0.5;
  trim->bias = std::clamp(trim->bias * std::pow(ratio, power), kMinBias, kMaxBias);
}

// A second in which other containers were active for a part of the time counts as time beside them.
// The factor for times alone corrects the use in the rest of that second. NVML's samples are so old
// that the first second after a change still includes use from before the change.
void Arbiter::Utilization(int64_t now, Id id, double used) {
  ContainerState* const container = Find(id);
  if (container == nullptr) return;
  MeterCorrection& meter = container->meter;
  const bool first = meter.at == 0;
  const auto span = double(std::max<int64_t>(now - std::exchange(meter.at, now), 1));
  const double alone = double(std::exchange(meter.alone, 0)) / span;
  const double beside = double(std::exchange(meter.beside, 0)) / span;
  const bool was_beside = std::exchange(meter.was_beside, beside > 0);
  if (first || container->longest > kTooLongToTrim) return;
  if (was_beside != (beside > 0)) {
    meter.trim_alone.samples = meter.trim_beside.samples = 0;
  } else if (!was_beside) {
    Correct(alone, used, &meter.trim_alone);
  } else if (beside > kMinBeside * alone) {
    Correct(beside, used - alone * meter.trim_alone.bias, &meter.trim_beside);
  }
}

}  // namespace tessera::limiter
