// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/compute/arbiter.h"

#include <algorithm>
#include <cmath>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

constexpr double kQ16 = double(kOne);
// Half of the GPU time that a container may hold in advance; at least two ticks.
constexpr int64_t kLead = 4 * kMillisecond;
constexpr int64_t kLeastCap = kMillisecond;
// With less work in flight, the GPU is about to idle.
constexpr int64_t kDrained = kMillisecond / 4;
// Time between two ticks while containers contend, and while a low class may have to stop: a stop
// must reach it long before its 10 ms have passed.
constexpr int64_t kTick = 2 * kMillisecond, kStopTick = kMillisecond / 2;
// kTick while more than kCrowd containers contend. Each uses less of a tick then, so the shares
// hold as well.
constexpr int64_t kCrowdedTick = 3 * kMillisecond;
constexpr int kCrowd = 8;
// A container that launched within this time may launch again soon, so its turns must be seen.
constexpr int64_t kRecent = kSecond;
// Time between two ticks while one container is alone, and while no container is active.
constexpr int64_t kAloneTick = 8 * kMillisecond, kIdleTick = 16 * kMillisecond;
// A container that has launched nothing for this time is read only every kIdleTick.
constexpr int64_t kAsleep = 100 * kMillisecond;
constexpr int64_t kRateMemory = 5 * kMillisecond;
constexpr int64_t kActive = 50 * kMillisecond, kIdle = 10 * kMillisecond;
constexpr int64_t kHighHold = 5 * kMillisecond;
// A high class waits for kernels of a stopped low class up to this length, and no longer.
constexpr int64_t kAwaited = 4 * kQuantum;
// Window of a high class until then: with a slice, less than a turn.
constexpr int64_t kHighWindow = 800 * kMicrosecond;
constexpr int64_t kLongMemory = 100 * kMillisecond;
// Minimum of the window of a process, which shrinks with the number of containers: with shorter
// turns of the others, a program that waits for its launches gets more of them. At least two
// slices.
constexpr int64_t kLeastWindow = 800 * kMicrosecond;
// Turns (DecideTurn), in nanoseconds of GPU time. A container gets a turn when it is owed kTurn. It
// is owed, or owes, at most kMostOwed, which bounds the effect of a turn on a window of a second.
// Another container takes over the turn if it is owed kTurnLead more. What a container uses of its
// turns is averaged over kTurnUseMemory.
constexpr double kTurn = 16e6, kMostOwed = 32e6, kTurnLead = 4e6, kTurnUseMemory = 64e6;
// A container without work for kAbsent gains no claim. A container that has waited for kSaturated
// without a break gets all of its work from its pool.
constexpr int64_t kAbsent = 200 * kMillisecond, kSaturated = 100 * kMillisecond;
// Time since a launch, or since a wait for the limit, in which a program counts as between two
// launches, or as at its limit.
constexpr int64_t kBetween = 300 * kMicrosecond, kAtLimit = 5 * kMillisecond;
// A wait within a tick and this time shows a backlog: a pause that began just before the tick.
constexpr int64_t kLongestPause = kMillisecond;
// Maximum debt of a container without work for use beyond its share.
constexpr int64_t kMostDebt = 20 * kMillisecond;
// A process that writes nothing for this time has ended or is stopped: its work in flight does not
// count any more.
constexpr int64_t kSilent = 100 * kMillisecond;
// Correction of the meter by NVML (Utilization): the difference that counts, kernels too long for
// NVML's samples, the steadiness of the load, and the bounds of the correction.
constexpr double kDeadBand = 0.004;  // of the GPU
constexpr int64_t kTooLongToTrim = 150 * kMillisecond;
constexpr double kLeastChange = 0.02;
constexpr double kLeastBias = 0.1, kMostBias = 10;

// Bounds for values that a container writes.
constexpr int64_t kLargest = int64_t(1) << 60;
constexpr int64_t kMostAtOnce = 16 * kSecond;

int64_t Bounded(int64_t value) { return std::clamp(value, -kLargest, kLargest); }
uint32_t ToQ16(double value) { return uint32_t(std::clamp(value, 0.0, 1000.0) * kQ16); }

}  // namespace

const Arbiter::Container* Arbiter::Find(Id id) const {
  const auto at = std::ranges::lower_bound(containers_, id, {}, &Container::id);
  return at != containers_.end() && at->id == id ? &*at : nullptr;
}

void Arbiter::Set(Id id, const ComputeShare& share) {
  Container* container = Find(id);
  if (container != nullptr && container->share == share) return;
  if (container != nullptr) {
    container->share = share;
    ++container->epoch;
  } else {
    const auto at = std::ranges::lower_bound(containers_, id, {}, &Container::id);
    containers_.insert(at, Container{.id = id, .share = share});
  }
  DecideWeights();
}

void Arbiter::Remove(Id id) {
  std::erase_if(containers_, [id](const Container& one) { return one.id == id; });
  DecideWeights();
}

// Containers without a request divide the rest that the requests leave.
void Arbiter::DecideWeights() {
  double requested = 0, weights = 0;
  for (const Container& container : containers_) {
    requested += container.share.request;
    if (container.share.request <= 0) weights += container.share.weight;
  }
  const double rest = std::max(0.01, 1 - requested);
  by_limit_.clear();
  for (Container& container : containers_) {
    const ComputeShare& share = container.share;
    container.weight =
        share.request > 0 ? share.request : rest * share.weight / std::max(weights, 1e-9);
    container.limit = share.limit > 0 ? share.limit : 1;
    by_limit_.push_back(&container);
  }
  std::ranges::stable_sort(by_limit_, {},
                           [](const Container* one) { return one->limit / one->weight; });
}

Arbiter::ProcessState& Arbiter::ProcessOf(uint32_t slot, Container* container) {
  auto& processes = container->processes;
  const auto at = std::ranges::lower_bound(processes, slot, {}, &ProcessState::slot);
  if (at != processes.end() && at->slot == slot) return *at;
  return *processes.insert(at, ProcessState{.slot = slot});
}

// The weight of a sample over `dt` in an exponential mean. Most processes are read at once.
double Arbiter::NewPart(int64_t dt) {
  if (dt != new_part_of_) {
    new_part_of_ = dt;
    new_part_ = -std::expm1(-double(dt) / double(kRateMemory));
  }
  return new_part_;
}

void Arbiter::ReadProcess(int64_t now, const ProcessReading& claim, Container* container) {
  // A time in the future counts as now.
  ProcessReading reading = claim;
  for (int64_t* time : {&reading.last_launch, &reading.last_long, &reading.last_wait,
                        &reading.last_limited, &reading.seen}) {
    *time = std::clamp<int64_t>(*time, 0, now);
  }
  ProcessState& process = ProcessOf(reading.slot, container);
  const int64_t metered = Bounded(reading.metered);
  if (process.read_at != 0 && now > process.read_at) {
    const double dt = double(now - process.read_at);
    const double used = double(std::clamp<int64_t>(metered - process.metered, 0, kMostAtOnce)) / dt;
    process.rate += (used - process.rate) * NewPart(now - process.read_at);
  }
  process.metered = metered;
  process.read_at = now;
  process.read = true;
  const bool silent = now - reading.seen > kSilent;
  process.in_flight = silent ? 0 : std::clamp<int64_t>(reading.in_flight, 0, kMostAtOnce);
  if (process.in_flight > 0) process.busy_at = now;
  process.active = now - std::max(process.busy_at, reading.last_launch) < kActive;
  process.long_work = now - reading.last_long < kLongMemory;
  container->in_flight += process.in_flight;
  container->last_launch = std::max(container->last_launch, reading.last_launch);
  container->last_wait = std::max(container->last_wait, reading.last_wait);
  if (now > container->held_until) container->last_denied = container->last_wait;
  container->last_limited = std::max(container->last_limited, reading.last_limited);
  container->longest = std::max(container->longest, reading.longest);
  container->metered = Bounded(container->metered + metered);
}

void Arbiter::Read(int64_t now, const Reading& reading) {
  Container* const found = Find(reading.id);
  if (found == nullptr) return;
  Container& container = *found;
  const int64_t charged = Bounded(reading.charged);
  container.used = container.known ? charged - container.charged : 0;
  container.charged = charged;
  if (!container.known) container.pool = charged;
  container.known = true;
  container.read_at = now;
  container.in_flight = container.metered = container.longest = 0;
  for (ProcessState& process : container.processes) process.read = false;
  for (const ProcessReading& process : reading.processes) ReadProcess(now, process, &container);
  std::erase_if(container.processes, [](const ProcessState& one) { return !one.read; });
  container.idle = container.in_flight == 0 && now - container.last_launch > kIdle &&
                   now - container.last_wait > kIdle;
}

// True: the container has kernels in flight that need several turns of the GPU, and that a high
// class waits for.
bool Arbiter::IsLongLow(const Container& container) {
  return container.share.priority == PriorityClass::kLow && container.in_flight > 0 &&
         container.longest > kQuantum && container.longest <= kAwaited;
}

// Returns x such that processes with short kernels, which get their rate but at most x, and
// processes with long kernels, which get a turn whenever they have work, fill the GPU with this
// process.
double Arbiter::PartOf(const ProcessState& process) const {
  if (active_ < 2) return 1;
  const bool is_short = process.active && !process.long_work;
  const double own = is_short ? process.rate : 0;
  const size_t rank = is_short ? process.rank : short_active_.size();
  double others = 1 + long_active_;
  if (process.active && process.long_work) others -= process.LongPart();
  // The short processes but this one below `index` get their rate. This is their sum, and the rest
  // for each process that gets x.
  const auto given = [&](size_t index) { return rates_below_[index] - (rank < index ? own : 0); };
  const auto slope = [&](size_t index) {
    return others + double(short_active_.size() - index) - (is_short && rank >= index ? 1 : 0);
  };
  size_t low = 0, high = short_active_.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const bool reached = short_active_[middle]->rate * slope(middle) >= 1 - given(middle);
    (reached ? high : low) = reached ? middle : middle + 1;
  }
  return std::min(1.0, (1 - given(low)) / slope(low));
}

// Collects the active processes. The rates of those with short kernels are sorted and summed up,
// so that PartOf need not walk them.
void Arbiter::CollectActive() {
  active_ = 0;
  short_active_.clear();
  long_active_ = 0;
  for (Container& container : containers_) {
    for (ProcessState& process : container.processes) {
      if (!process.active) continue;
      ++active_;
      if (process.long_work) {
        long_active_ += process.LongPart();
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
  CollectActive();
  for (Container& container : containers_) {
    for (ProcessState& process : container.processes) {
      if (process.at != 0) process.integral += int64_t(process.part * double(now - process.at));
      process.at = now;
      process.part = PartOf(process);
    }
  }
}

void Arbiter::DecideStops(int64_t now) {
  bool high = false;
  for (const Container& container : containers_) {
    high |= container.share.priority == PriorityClass::kHigh &&
            (container.in_flight > 0 || now - container.last_wait < kHighHold ||
             now - container.last_launch < kHighHold);
  }
  for (Container& container : containers_) {
    const bool low = container.share.priority == PriorityClass::kLow;
    const uint32_t flags = (low ? kComputeLow : 0) | (low && high ? kComputeStop : 0);
    // At a stop, threads give up the GPU time that they have taken in advance.
    if ((flags & kComputeStop) != 0 && (container.flags & kComputeStop) == 0) {
      ++container.epoch;
      container.stopped_at = now;
    }
    container.flags = flags;
  }
}

int64_t Arbiter::CapOf(const Container& container, double weights) const {
  return std::max(kLeastCap, int64_t(2 * double(kLead) * container.weight / weights));
}

double Arbiter::Elapsed(int64_t now) const {
  return last_tick_ == 0 ? 0 : double(std::min<int64_t>(now - last_tick_, kLease));
}

// The GPU time since the last tick that containers with a backlog may use.
double Arbiter::Budget(int64_t now) const {
  double budget = Elapsed(now);
  for (const Container& container : containers_) {
    if (container.light) budget -= double(container.used);
  }
  return std::max(budget, 0.0);
}

void Arbiter::DecidePools(int64_t now) {
  double weights = 0;
  for (Container& container : containers_) {
    container.idle |= !container.known;
    if (!container.idle && (container.flags & kComputeStop) == 0) weights += container.weight;
  }
  weights = std::max(weights, 1e-6);
  int active = 0;
  int64_t in_flight = 0;
  for (Container& container : containers_) {
    const int64_t head = container.pool - container.charged, cap = CapOf(container, weights);
    const bool backlog = now - container.last_denied < Backlog();
    container.light = container.idle || (head >= cap * 3 / 4 && !backlog);
    // A stopped container keeps its pool, and takes part again after the stop.
    container.stopped = (container.flags & kComputeStop) != 0;
    active += !container.idle && !container.stopped;
    in_flight += container.in_flight;
  }
  const double budget = Budget(now);
  double heavy = 0, most = 1e18, needed = 1e18;
  for (const Container& container : containers_) {
    if (container.light || container.stopped) continue;
    heavy += container.weight;
    const auto head = double(container.pool - container.charged),
               cap = double(CapOf(container, weights));
    if (head > 0) most = std::min(most, std::max(0.0, cap - head) / container.weight);
    if (head <= 0) needed = std::min(needed, (cap / 2 - head) / container.weight);
  }
  double each = heavy > 0 ? std::min(budget / heavy, most) : 0;
  const bool drains = in_flight < (active <= 1 ? kLead : kDrained);
  if (drains && turn_ == kNoTurn && needed < 1e18) each = std::max(each, needed);
  for (Container& container : containers_) {
    if (container.light) {
      const int64_t full = container.charged + CapOf(container, weights);
      container.pool =
          container.idle ? std::min(full, Repaid(container, Elapsed(now), weights)) : full;
    } else if (!container.stopped) {
      container.pool += int64_t(each * container.weight);
    }
  }
}

// The pool of a container without work: its share of the elapsed time repays its debt.
int64_t Arbiter::Repaid(const Container& container, double elapsed, double weights) const {
  const double share = container.weight / (weights + container.weight);
  return std::max(container.pool, container.charged - kMostDebt) + int64_t(share * elapsed);
}

// Measures which part of its turns a container uses. The first tick, in which others still run, and
// the last, after which the container pauses or waits for its limit, do not count.
void Arbiter::MeasureTurnUse(int64_t now, double elapsed, Container* container) {
  const bool works = container->in_flight > 0 || now - container->last_launch < kBetween;
  if (!container->alone || !works || now - container->last_limited <= kAtLimit) return;
  const double change = double(container->used) - container->turn_use * elapsed;
  container->turn_use = std::clamp(container->turn_use + change / kTurnUseMemory, 0.0, 1.0);
}

// Adds to `owed` the GPU time that each container was entitled to since the last tick, by weight
// and within its limit, minus the time that it used. In its own turn a container is entitled only
// to what it can use then: otherwise the turn of a large share that leaves the GPU idle between its
// launches would never end.
void Arbiter::DecideOwed(int64_t now) {
  const double elapsed = Elapsed(now);
  double weights = 0, rest = 1;
  int64_t in_flight = 0;  // of containers without a turn
  for (Container& container : containers_) {
    if (container.id != turn_) in_flight += container.in_flight;
    const int64_t last = std::max(container.last_launch, container.last_wait);
    container.present = container.known && !container.stopped && now - last <= kAbsent;
    if (container.present) weights += container.weight;
  }
  // Containers that reach their limits first come first; the others divide the rest.
  for (Container* container : by_limit_) {
    if (!container->present) continue;
    const double part =
        std::min(container->limit, rest * container->weight / std::max(weights, 1e-9));
    rest -= part;
    weights -= container->weight;
    const auto used = double(container->used);
    // A container that leaves the GPU idle in its turn pays for half of the time or more.
    const bool alone = container->has_turn && in_flight < kDrained;
    if (alone) MeasureTurnUse(now, elapsed, container);
    container->alone = alone;
    container->owed += part * elapsed * (alone ? container->turn_use : 1);
    container->owed -= alone ? std::max(used, elapsed / 2) : used;
    if (now - container->last_denied > Backlog()) container->last_content = now;
    const bool gains =
        now - container->last_limited > kAtLimit && now - container->last_content < kSaturated;
    container->owed = std::clamp(container->owed, -kMostOwed, gains ? kMostOwed : 0);
  }
}

// A program that waits for its own launches gets one batch in each round of the driver's turns,
// which is little beside many processes or long kernels. Once its container is owed enough, it gets
// a turn: the other containers launch nothing until it has used the time that it is owed. The pools
// of containers that are ahead of their share would not hold them, because samples of launches that
// were shorter than their prices return GPU time, and so let another launch of 10 ms begin.
void Arbiter::DecideTurn(int64_t now) {
  Container* holder = nullptr;
  Container* next = nullptr;
  for (Container& container : containers_) {
    container.held = container.has_turn = false;
    const bool works = container.in_flight > 0 || now - container.last_launch < kBetween ||
                       now - container.last_wait < tick_;
    if (!works || container.stopped || container.owed <= 0) continue;
    if (container.id == turn_) holder = &container;
    if (container.owed > kTurn && (next == nullptr || container.owed > next->owed)) {
      next = &container;
    }
  }
  if (next != nullptr && (holder == nullptr || next->owed > holder->owed + kTurnLead)) {
    holder = next;
    turn_ = next->id;
  }
  if (holder == nullptr) {
    turn_ = kNoTurn;
    return;
  }
  holder->has_turn = true;
  holder->pool = std::max(holder->pool, holder->charged + int64_t(holder->owed));
  for (Container& container : containers_) {
    container.held = &container != holder && !container.idle && !container.stopped;
    if (container.held) container.held_until = now + Backlog();
  }
}

// A kernel of a low class that needs several turns of the GPU alternates with turns of the high
// class. It ends sooner if the high class has launched little when it is stopped (HighWindow), and
// launches nothing more meanwhile.
void Arbiter::HoldHighClasses(int64_t now) {
  const auto is_awaited = [now](const Container& one) {
    return one.stopped && IsLongLow(one) && now - one.stopped_at < kAwaited;
  };
  const bool awaits = std::ranges::any_of(containers_, is_awaited);
  for (Container& container : containers_) {
    container.awaits_low = awaits && container.share.priority == PriorityClass::kHigh;
    if (container.awaits_low) container.held_until = now + Backlog();
  }
}

int64_t Arbiter::HighWindow(int64_t window) const {
  return std::ranges::any_of(containers_, IsLongLow) ? std::min(kHighWindow, window) : window;
}

void Arbiter::Write(int64_t now) {
  outcome_.grants.clear();
  outcome_.parts.clear();
  int64_t active = 0;
  for (const Container& container : containers_) active += !container.idle;
  const int64_t window = std::clamp(kWindow / std::max<int64_t>(active, 1), kLeastWindow, kWindow);
  const int64_t high_window = HighWindow(window);
  for (Container& container : containers_) {
    const ComputeShare& share = container.share;
    const bool is_high = share.priority == PriorityClass::kHigh;
    const bool stops = container.awaits_low || (container.held && container.owed < 0);
    outcome_.grants.push_back(
        {.id = container.id,
         .epoch = container.epoch,
         .flags = container.flags | (stops ? kComputeStop : 0),
         .bias = ToQ16(container.bias),
         .cap = ToQ16(share.limit),
         .floor = ToQ16(container.weight),
         .window_us = uint32_t((is_high ? high_window : window) / kMicrosecond),
         .pool = container.held ? std::min(container.pool, container.charged) : container.pool,
         .lease_end = now + kLease});
    for (const ProcessState& process : container.processes) {
      const bool others = active_ > (process.active ? 1u : 0u);
      outcome_.parts.push_back({.id = container.id,
                                .slot = process.slot,
                                .part = ToQ16(process.part),
                                .contended = others,
                                .integral = process.integral,
                                .at = process.at});
    }
  }
}

int64_t Arbiter::Backlog() const { return tick_ + kLongestPause; }

int64_t Arbiter::NextTick(int64_t now) {
  bool high = false, low = false;
  int active = 0;
  for (const Container& container : containers_) {
    high |= container.share.priority == PriorityClass::kHigh;
    low |= container.share.priority == PriorityClass::kLow && container.in_flight > 0;
    active += container.known && now - container.last_launch < kRecent;
  }
  tick_ = active > kCrowd ? kCrowdedTick : kTick;
  if (high && low) return kStopTick;
  return active > 1 ? tick_ : active == 1 ? kAloneTick : kIdleTick;
}

const Arbiter::Outcome& Arbiter::Tick(int64_t now, std::span<const Reading> readings) {
  for (Container& container : containers_) container.used = 0;
  for (const Reading& reading : readings) Read(now, reading);
  DecideParts(now);
  DecideStops(now);
  DecidePools(now);
  DecideOwed(now);
  DecideTurn(now);
  HoldHighClasses(now);
  Write(now);
  last_tick_ = now;
  // On one grid, so that one wake-up serves the arbiters of all GPUs.
  const int64_t interval = NextTick(now);
  outcome_.next = (now + interval) / interval * interval;
  return outcome_;
}

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

Arbiter::ProcessReading ReadLine(uint32_t slot, const ComputeSlot& line) {
  return {.slot = slot,
          .metered = line.metered.load(kRelaxed),
          .in_flight = line.in_flight.load(kRelaxed),
          .last_launch = line.last_launch.load(kRelaxed),
          .last_long = line.last_long.load(kRelaxed),
          .last_wait = line.last_wait.load(kRelaxed),
          .seen = line.seen.load(kRelaxed),
          .longest = line.longest.load(kRelaxed),
          .last_limited = line.last_limited.load(kRelaxed)};
}

bool Arbiter::IsDue(int64_t now, Id id) const {
  const Container* const found = Find(id);
  if (found == nullptr) return false;
  const Container& container = *found;
  const int64_t last = std::max(container.last_launch, container.last_wait);
  return !container.known || container.in_flight > 0 || now - last < kAsleep ||
         container.share.priority == PriorityClass::kHigh || now - container.read_at >= kIdleTick;
}

// The epoch is stored last: a thread that reads a new epoch also reads the other new values.
void WriteGrant(const Arbiter::Grant& grant, ComputeLimit* line) {
  line->flags.store(grant.flags, kRelaxed);
  line->pool.store(grant.pool, kRelaxed);
  line->bias.store(grant.bias, kRelaxed);
  line->cap.store(grant.cap, kRelaxed);
  line->floor.store(grant.floor, kRelaxed);
  line->window_us.store(grant.window_us, kRelaxed);
  line->lease_end.store(grant.lease_end, std::memory_order_release);
  line->epoch.store(grant.epoch, std::memory_order_release);
}

// Each store is ordered after the odd sequence number. ThreadSanitizer does not support fences.
void WritePart(const Arbiter::Part& part, ComputePart* line) {
  constexpr auto kRelease = std::memory_order_release;
  const uint32_t sequence = line->sequence.load(kRelaxed) | 1;
  line->sequence.store(sequence, kRelaxed);
  line->part.store(part.part, kRelease);
  line->integral.store(part.integral, kRelease);
  line->at.store(part.at, kRelease);
  line->contended.store(part.contended, kRelease);
  line->sequence.store(sequence + 1, kRelease);
}

}  // namespace tessera::limiter
