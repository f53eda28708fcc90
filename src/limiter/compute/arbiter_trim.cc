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
// kTooLongToCorrect are not corrected. A change of the load by more than kMinChange restarts the
// averages.
constexpr double kDeadBand = 0.004;  // of the GPU
constexpr int64_t kTooLongToCorrect = 150 * kMillisecond;
constexpr double kMinChange = 0.02;
// The usual difference between NVML's measures of two seconds of the same load.
constexpr double kUsualNoise = 0.01;
// A second corrects the factor for contended times only if the container used more than this
// fraction of its use alone while other containers were active.
constexpr double kMinContended = 0.25;
// Processes that live for less than this are reported too late or not at all.
constexpr int64_t kShortLife = 2 * kSecond;
constexpr double kMinBias = 0.1, kMaxBias = 10;
// If launches are longer or shorter by the factor kOtherLength for kOtherLengthTime, they count as
// other work.
constexpr int64_t kOtherLength = 3;
constexpr int64_t kOtherLengthTime = 300 * kMillisecond;

}  // namespace

// NVML reports old samples in whole percents. So only means over steady seconds are compared, and
// each comparison corrects only a part of the difference. NVML certainly sees
// `surely_sampled_part` of the metered time and may miss the rest. So a measure between that part
// and the whole metered time is not an error.
void Arbiter::CorrectBias(double metered, double surely_sampled_part, double used,
                          BiasEstimate* estimate) {
  metered = std::clamp(used / estimate->bias, metered * surely_sampled_part, metered);
  const auto changed = [](double mean, double value, double noise) {
    return std::abs(value - mean) > std::max({kMinChange, 0.2 * mean, 3 * noise});
  };
  if (changed(estimate->mean_metered, metered, 0)) {
    estimate->samples = 0;
  } else {
    estimate->noise += 0.2 * (std::abs(used - estimate->last_nvml) - estimate->noise);
    if (changed(estimate->mean_nvml, used, estimate->noise)) estimate->samples = 0;
  }
  estimate->last_nvml = used;
  ++estimate->samples;
  // The mean of a noisy measure needs more samples.
  const double last_weight = std::clamp(kUsualNoise / std::max(estimate->noise, 1e-9), 0.05, 0.5);
  const double weight = std::max(last_weight, 1.0 / estimate->samples);
  estimate->mean_metered += (metered - estimate->mean_metered) * weight;
  estimate->mean_nvml += (used - estimate->mean_nvml) * weight;
  const double biased = estimate->mean_metered * estimate->bias;
  const double uncertainty = std::max(0.0, estimate->noise - kUsualNoise) * 1.5 * std::sqrt(weight);
  if (estimate->samples < 3 || biased < kDeadBand || estimate->mean_nvml < kDeadBand ||
      std::abs(estimate->mean_nvml - biased) <= std::max({kDeadBand, 0.01 * biased, uncertainty})) {
    return;
  }
  const double ratio = estimate->mean_nvml / biased;
  const double power = ratio > 1.3 || ratio < 0.77 ? 0.95 : 0.5;
  estimate->bias = std::clamp(estimate->bias * std::pow(ratio, power), kMinBias, kMaxBias);
}

// Events are inexact by an amount that depends on the program: on the length of its launches, and
// on how many of its streams overlap. A factor below 1 lets a container launch more. Such a factor
// can be far too small for the next program, so it ends with the processes or with the length of
// launches for which it was found. A factor above 1 stays until NVML's measure changes it:
// otherwise a container could end the factor by reporting another length.
void Arbiter::EndFavorableBias(int64_t now, ContainerState* container) {
  MeterCorrection& meter = container->meter;
  const auto is_older = [now](const ProcessState& process) { return process.first_read_at < now; };
  bool is_other_work =
      meter.ended_at == now && std::ranges::none_of(container->processes, is_older);
  const int64_t longest = container->longest;
  const bool has_length =
      longest / kOtherLength <= meter.longest && longest >= meter.longest / kOtherLength;
  if (has_length || longest <= 0) meter.had_length_at = now;
  if (now - meter.had_length_at >= kOtherLengthTime) {
    is_other_work |= meter.longest != 0;
    meter.longest = longest;
  }
  if (!is_other_work) return;
  for (BiasEstimate* estimate : {&meter.bias_alone, &meter.bias_contended}) {
    if (estimate->bias < 1) *estimate = {};
  }
}

void Arbiter::ResumeBias(Id id, double bias) {
  ContainerState* const container = Find(id);
  if (container == nullptr) return;
  MeterCorrection& meter = container->meter;
  meter.bias_alone.bias = meter.bias_contended.bias = std::clamp(bias, kMinBias, kMaxBias);
}

// A second in which other containers were active for a part of the time counts as contended. The
// container's use in the rest of this second is corrected with the factor for times alone. NVML's
// samples are so old that the first second after a change still includes use from before the
// change.
void Arbiter::RecordUtilization(int64_t now, Id id, double used) {
  ContainerState* const container = Find(id);
  if (container == nullptr) return;
  MeterCorrection& meter = container->meter;
  const bool first = meter.updated_at == 0;
  const auto span = double(std::max<int64_t>(now - std::exchange(meter.updated_at, now), 1));
  const double alone = double(std::exchange(meter.time_alone, 0)) / span;
  const double contended = double(std::exchange(meter.time_contended, 0)) / span;
  double unsampled = double(std::exchange(meter.time_unsampled, 0)) / span;
  const double young = double(std::exchange(meter.time_young, 0)) / span;
  // If processes have ended, processes that have just started may also end soon.
  if (meter.ended_at != 0 && now - meter.ended_at < kShortLife) unsampled += young;
  for (ProcessState& process : container->processes) process.sampled_time = 0;
  const bool was_contended = std::exchange(meter.was_contended, contended > 0);
  // NVML's samples may be of the second before.
  const double part = unsampled / std::max({alone + contended, unsampled, 1e-9});
  const double surely_sampled_part = 1 - std::max(part, std::exchange(meter.unsampled_part, part));
  if (first || container->longest > kTooLongToCorrect) return;
  if (was_contended != (contended > 0)) {
    meter.bias_alone.samples = meter.bias_contended.samples = 0;
  } else if (!was_contended) {
    CorrectBias(alone, surely_sampled_part, used, &meter.bias_alone);
  } else if (contended > kMinContended * alone) {
    CorrectBias(contended, surely_sampled_part, used - alone * meter.bias_alone.bias,
                &meter.bias_contended);
  }
}

}  // namespace tessera::limiter
