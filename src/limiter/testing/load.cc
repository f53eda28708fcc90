// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/testing/load.h"

#include <cmath>

namespace tessera::limiter::testing {
namespace {

std::string FormatDuration(double nanoseconds) {
  const bool us = nanoseconds < kMs;
  return std::to_string(int(nanoseconds / (us ? kUs : kMs))) + (us ? "us" : "ms");
}

Load Async(double length) {
  return {.name = "async " + FormatDuration(length), .kernels = {{length}}};
}
Load Sync(double length, int every) {
  return {.name = "sync " + std::to_string(every) + " x " + FormatDuration(length),
          .kernels = {{length}},
          .sync_every = every};
}
Load Bursty(double length, double burst, double think) {
  return {.name = "burst " + FormatDuration(burst) + " think " + FormatDuration(think) + " of " +
                  FormatDuration(length),
          .kernels = {{length}},
          .burst = burst,
          .think = think};
}

}  // namespace

// Grids of about the same number of blocks differ in their shape.
void Program::ChooseGrid(Step* step, double* length) {
  constexpr uint64_t kMean = 400'000;
  if (load_.grids == Load::Grids::kFixed) return;
  const uint64_t blocks = load_.grids == Load::Grids::kGrowing ? kMean / 50 + 4 * grids_
                                                               : random_() % (kMean * 49 / 25);
  step->blocks[1] = uint64_t(1) << grids_ % 3;
  step->blocks[0] = (blocks + kMean / 50) / step->blocks[1];
  ++grids_;
  *length *= std::pow(double(step->blocks[0] * step->blocks[1]) / double(kMean), load_.power);
}

Step Program::Next() {
  const bool burst_done = load_.burst > 0 && in_burst_ >= load_.burst;
  const bool batch_done = load_.sync_every > 0 && launches_ >= load_.sync_every;
  if (burst_done || batch_done) {
    launches_ = 0;
    thinks_ = burst_done;
    if (burst_done) in_burst_ = 0;
    return {Step::kSync, 0, 0, 0};
  }
  if (thinks_) {
    thinks_ = false;
    return {Step::kThink, int64_t(load_.think), 0, 0};
  }
  const size_t kernel_index = random_() % load_.kernels.size();
  const Load::Kernel& kernel = load_.kernels[kernel_index];
  Step step{.kind = Step::kLaunch, .length = 0, .function = kernel_index, .stream = 0};
  const bool has_other_length =
      kernel.other_every > 0 && ++launches_by_kernel_[kernel_index] % kernel.other_every == 0;
  double length = has_other_length ? kernel.other_length : kernel.length;
  ChooseGrid(&step, &length);
  if (kernel.spread > 0) {
    std::normal_distribution<double> normal(-kernel.spread * kernel.spread / 2, kernel.spread);
    length *= std::exp(normal(random_));
  }
  ++launches_;
  in_burst_ += length;
  stream_ = (stream_ + 1) % uint64_t(load_.streams);
  step.exchanged =
      load_.exchanges && (kernel.other_every == 0 || has_other_length != had_other_length_);
  had_other_length_ = has_other_length;
  step.length = std::max<int64_t>(1'000, int64_t(length));
  step.stream = int(stream_);
  longest_ = std::max(longest_, step.length);
  return step;
}

std::vector<Load> AllLoads() {
  std::vector<Load> loads;
  for (double length :
       {5 * kUs, 20 * kUs, 100 * kUs, 500 * kUs, 2 * kMs, 5 * kMs, 20 * kMs, 50 * kMs})
    loads.push_back(Async(length));
  for (double length : {5 * kUs, 20 * kUs, 100 * kUs, 500 * kUs, 2 * kMs, 20 * kMs})
    loads.push_back(Sync(length, 1));
  for (double length : {5 * kUs, 20 * kUs, 100 * kUs, 500 * kUs}) loads.push_back(Sync(length, 64));
  loads.push_back(Bursty(20 * kUs, 10 * kMs, 10 * kMs));
  loads.push_back(Bursty(100 * kUs, 30 * kMs, 70 * kMs));
  loads.push_back(Bursty(1 * kMs, 5 * kMs, 2 * kMs));
  const std::vector<Load::Kernel> mixed = {{5 * kUs},   {10 * kUs},  {30 * kUs}, {60 * kUs},
                                           {150 * kUs}, {400 * kUs}, {1 * kMs}};
  loads.push_back({.name = "mixed", .kernels = mixed});
  loads.push_back({.name = "mixed bursts", .kernels = mixed, .burst = 20 * kMs, .think = 5 * kMs});
  loads.push_back({.name = "heavy tail", .kernels = {{100 * kUs, 1.2}}});
  loads.push_back({.name = "graph", .kernels = {{6 * kMs, 0.05}}});
  loads.push_back({.name = "8 streams", .kernels = {{100 * kUs}}, .streams = 8});
  loads.push_back({.name = "4 unequal streams", .kernels = mixed, .streams = 4});
  return loads;
}

Load RandomLoad(std::mt19937_64* random) {
  const auto uniform = [&] { return double((*random)() >> 11) * 0x1p-53; };
  const auto length = [&](double from, double to) { return from * std::pow(to / from, uniform()); };
  Load load;
  const int keys = uniform() < 0.6 ? 1 : 2 + int(uniform() * 5);
  const double base = length(5 * kUs, 20 * kMs);
  for (int i = 0; i < keys; ++i) {
    const double spread = uniform() < 0.7 ? 0.0 : uniform();
    load.kernels.push_back({keys == 1 ? base : std::min(20 * kMs, base * length(0.2, 5)), spread});
  }
  if (uniform() < 0.15) load.streams = 2 + int(uniform() * 7);
  const double kind = uniform();
  if (kind < 0.2) {
    load.sync_every = 1 + int(length(1, 100));
  } else if (kind < 0.35) {
    load.burst = length(2 * kMs, 40 * kMs);
    load.think = length(1 * kMs, 50 * kMs);
  }
  load.name = std::to_string(keys) + " keys of " + FormatDuration(base) + ", " +
              std::to_string(load.streams) + " streams, sync " + std::to_string(load.sync_every) +
              ", burst " + FormatDuration(load.burst) + " think " + FormatDuration(load.think);
  return load;
}

}  // namespace tessera::limiter::testing
