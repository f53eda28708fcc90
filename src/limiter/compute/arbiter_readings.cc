// SPDX-License-Identifier: Apache-2.0
// Processes the readings of the containers, and computes the part of the GPU that each process
// gets.
#include "src/limiter/compute/arbiter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// Time constant of ProcessState::rate.
constexpr int64_t kRateMemory = 5 * kMillisecond;
// After its last work, a process counts as active for kActiveTime, and a container as not idle for
// kIdleTime.
constexpr int64_t kActiveTime = 50 * kMillisecond, kIdleTime = 10 * kMillisecond;
// How long after its last long kernel a process counts as one with long kernels.
constexpr int64_t kLongMemory = 100 * kMillisecond;
// A process that writes nothing for this time has ended or is stopped. Its work in flight no longer
// counts.
constexpr int64_t kSilentTime = 100 * kMillisecond;
// NVML reports nothing, or too little, about a process that ends after a shorter time.
constexpr int64_t kYoungAge = kSecond;
// Bounds for values that a container writes.
constexpr int64_t kMaxMagnitude = int64_t(1) << 60;
constexpr int64_t kMaxSample = 16 * kSecond;

int64_t Bounded(int64_t value) { return std::clamp(value, -kMaxMagnitude, kMaxMagnitude); }

}  // namespace

Arbiter::ProcessState& Arbiter::ProcessOf(uint32_t slot, ContainerState* container) {
  auto& processes = container->processes;
  const auto at = std::ranges::lower_bound(processes, slot, {}, &ProcessState::slot);
  if (at != processes.end() && at->slot == slot) return *at;
  return *processes.insert(at, ProcessState{.slot = slot});
}

// The weight of a sample over `dt` in an exponential mean. It is cached, because most processes are
// read at the same time.
double Arbiter::SampleWeight(int64_t dt) {
  if (dt != sample_weight_dt_) {
    sample_weight_dt_ = dt;
    sample_weight_ = -std::expm1(-double(dt) / double(kRateMemory));
  }
  return sample_weight_;
}

// A process lowers `metered` only by small corrections. So if `metered` has fallen by more than
// half, the slot has another process.
void Arbiter::MeterProcess(int64_t now, int64_t metered, ProcessState* process,
                           ContainerState* container) {
  if (metered < process->metered / 2) EndProcess(now, process, container);
  if (process->first_read_at == 0) {
    process->first_read_at = now;
    process->metered = process->read_at == 0 ? metered : 0;
  }
  const int64_t more =
      std::clamp<int64_t>(metered - std::exchange(process->metered, metered), 0, kMaxSample);
  MeterCorrection& meter = container->meter;
  int64_t& total = container->is_contended ? meter.time_contended : meter.time_alone;
  total = Bounded(total + more);
  const bool is_sampled = now - process->first_read_at > kYoungAge;
  int64_t& part = is_sampled ? process->sampled_time : meter.time_young;
  part = Bounded(part + more);
}

// NVML does not report the GPU time of a process that has ended, not even the time since the last
// report.
void Arbiter::EndProcess(int64_t now, ProcessState* process, ContainerState* container) {
  MeterCorrection& meter = container->meter;
  meter.ended_at = now;
  meter.time_unsampled = Bounded(meter.time_unsampled + std::exchange(process->sampled_time, 0));
  process->first_read_at = 0;
}

void Arbiter::ReadProcess(int64_t now, const ProcessReading& unchecked_reading,
                          ContainerState* container) {
  // A time in the future counts as now.
  ProcessReading reading = unchecked_reading;
  for (int64_t* time : {&reading.last_launch, &reading.last_long_work, &reading.last_wait,
                        &reading.last_limited, &reading.last_written}) {
    *time = std::clamp<int64_t>(*time, 0, now);
  }
  ProcessState& process = ProcessOf(reading.slot, container);
  const int64_t before = process.metered, read_before = process.read_at;
  MeterProcess(now, Bounded(reading.metered), &process, container);
  if (read_before != 0 && now > read_before) {
    const int64_t more = std::clamp<int64_t>(process.metered - before, 0, kMaxSample);
    const double dt = double(now - read_before);
    process.rate += (double(more) / dt - process.rate) * SampleWeight(now - read_before);
  }
  process.read_at = now;
  process.was_read = true;
  const bool silent = now - reading.last_written > kSilentTime;
  process.in_flight = silent ? 0 : std::clamp<int64_t>(reading.in_flight, 0, kMaxSample);
  if (process.in_flight > 0) process.busy_at = now;
  process.is_active = now - std::max(process.busy_at, reading.last_launch) < kActiveTime;
  process.has_long_work = now - reading.last_long_work < kLongMemory;
  container->in_flight += process.in_flight;
  container->last_launch = std::max(container->last_launch, reading.last_launch);
  container->last_wait = std::max(container->last_wait, reading.last_wait);
  if (now > container->held_until) container->last_denied = container->last_wait;
  container->last_limited = std::max(container->last_limited, reading.last_limited);
  container->longest = std::max(container->longest, reading.longest);
}

void Arbiter::ReadContainer(int64_t now, const ContainerReading& reading) {
  ContainerState* const found = Find(reading.id);
  if (found == nullptr) return;
  ContainerState& container = *found;
  const int64_t charged = Bounded(reading.charged);
  container.used_since_tick = container.is_known ? charged - container.charged : 0;
  container.charged = charged;
  const int64_t copied = Bounded(reading.copied);
  int64_t& unsampled = container.meter.time_unsampled;
  if (container.is_known)
    unsampled = Bounded(unsampled + std::clamp<int64_t>(copied - container.copied, 0, kMaxSample));
  container.copied = copied;
  if (!container.is_known) container.pool = charged;
  container.is_known = true;
  container.read_at = now;
  container.in_flight = container.longest = 0;
  for (ProcessState& process : container.processes) process.was_read = false;
  for (const ProcessReading& process : reading.processes) ReadProcess(now, process, &container);
  std::erase_if(container.processes, [&](ProcessState& process) {
    if (!process.was_read) EndProcess(now, &process, &container);
    return !process.was_read;
  });
  EndFavorableBias(now, &container);
  container.is_idle = container.in_flight == 0 && now - container.last_activity() > kIdleTime;
}

// Returns x, the largest part of the GPU that the process can get. The other processes with short
// kernels get their rate, but at most x. The processes with long kernels get a turn, which is also
// x, whenever they have work. x is such that all processes together fill the GPU.
double Arbiter::PartOf(const ProcessState& process) const {
  if (active_processes_ < 2) return 1;
  const bool is_short = process.is_active && !process.has_long_work;
  const double own = is_short ? process.rate : 0;
  const size_t rank = is_short ? process.rank : short_active_.size();
  double others = 1 + long_active_;
  if (process.is_active && process.has_long_work) others -= process.TurnFraction();
  // The short processes below `index`, except this process, get their rate. `rates` is the sum of
  // these rates, `sharers` the number of processes that get x.
  const auto rates = [&](size_t index) { return rates_below_[index] - (rank < index ? own : 0); };
  const auto sharers = [&](size_t index) {
    return others + double(short_active_.size() - index) - (is_short && rank >= index ? 1 : 0);
  };
  size_t low = 0, high = short_active_.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const bool reached = short_active_[middle]->rate * sharers(middle) >= 1 - rates(middle);
    (reached ? high : low) = reached ? middle : middle + 1;
  }
  return std::min(1.0, (1 - rates(low)) / sharers(low));
}

// Collects the active processes. Sorts and sums the rates of processes with short kernels, so that
// PartOf can use binary search.
void Arbiter::CollectActiveProcesses() {
  active_processes_ = 0;
  short_active_.clear();
  long_active_ = 0;
  has_long_work_ = false;
  for (ContainerState& container : containers_) {
    container.active_processes = 0;
    for (ProcessState& process : container.processes) {
      has_long_work_ |= process.has_long_work;
      if (!process.is_active) continue;
      ++active_processes_;
      ++container.active_processes;
      if (process.has_long_work) {
        long_active_ += process.TurnFraction();
      } else {
        short_active_.push_back(&process);
      }
    }
  }
  std::ranges::sort(short_active_, {}, &ProcessState::rate);
  rates_below_.assign(1, 0);
  for (size_t rank = 0; rank < short_active_.size(); ++rank) {
    short_active_[rank]->rank = rank;
    rates_below_.push_back(rates_below_.back() + short_active_[rank]->rate);
  }
}

void Arbiter::DecideParts(int64_t now) {
  CollectActiveProcesses();
  for (ContainerState& container : containers_) {
    container.is_contended = active_processes_ > container.active_processes;
    for (ProcessState& process : container.processes) {
      // Work of other processes began or ended at an unknown time between the two ticks.
      const double before = process.part;
      process.part = PartOf(process);
      const double mean = (before + process.part) / 2;
      if (process.part_integral_at != 0)
        process.part_integral += int64_t(mean * double(now - process.part_integral_at));
      process.part_integral_at = now;
    }
  }
}

Arbiter::ProcessReading ReadLine(uint32_t slot, const ComputeSlot& line) {
  return {.slot = slot,
          .metered = line.metered.load(kRelaxed),
          .in_flight = line.in_flight.load(kRelaxed),
          .last_launch = line.last_launch.load(kRelaxed),
          .last_long_work = line.last_long_work.load(kRelaxed),
          .last_wait = line.last_wait.load(kRelaxed),
          .last_written = line.last_written.load(kRelaxed),
          .longest = line.longest.load(kRelaxed),
          .last_limited = line.last_limited.load(kRelaxed)};
}

}  // namespace tessera::limiter
