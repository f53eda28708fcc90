// SPDX-License-Identifier: Apache-2.0
// What dividing compute costs the agent: one node with 8 GPUs and 100 limited containers of two
// processes each. Every container has a `usage` file that is read, and lines that are written, as
// the agent does it; in time of its own, so the result is processor time for a second of work.
//   arbiter_bench
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "src/limiter/compute/arbiter.h"
#include "src/limiter/compute/tuning.h"

namespace tessera {
namespace {

using limiter::Arbiter;
using limiter::kMillisecond;
using limiter::kSecond;

constexpr int kGpus = 8, kContainers = 100, kProcesses = 2;
constexpr int64_t kLength = 20 * kSecond;
// What the agent reads of a container at once.
constexpr size_t kBlock = sizeof(limiter::ComputeCharge) + 15 * sizeof(limiter::ComputeSlot);

double ProcessorSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return double(time.tv_sec) + double(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Gpu {
  Arbiter arbiter;
  std::vector<Arbiter::Reading> readings;
  std::vector<limiter::ComputeLimit> limits{size_t(kContainers)};
  std::vector<limiter::ComputePart> parts{size_t(kContainers) * kProcesses};
  int64_t next = 0;
};

// The containers of one GPU, of which some work all the time.
void Fill(Gpu* gpu, int first, int active) {
  for (int i = first; i < kContainers; i += kGpus) {
    const double share = 0.9 * kGpus / kContainers;
    gpu->arbiter.Set(Arbiter::Id(i), {.request = share, .limit = share});
    Arbiter::Reading reading{.id = Arbiter::Id(i)};
    for (uint32_t slot = 0; slot < uint32_t(kProcesses); ++slot) {
      reading.processes.push_back({.slot = slot});
    }
    if (i / kGpus >= active) reading.processes.clear();
    gpu->readings.push_back(std::move(reading));
  }
}

// Each active container has used its share since the last tick.
void Work(Gpu* gpu, int64_t now, int64_t elapsed) {
  for (Arbiter::Reading& reading : gpu->readings) {
    if (reading.processes.empty()) continue;
    const int64_t used = elapsed / int64_t(gpu->readings.size());
    reading.charged += used;
    for (Arbiter::ProcessReading& process : reading.processes) {
      process.metered += used / kProcesses;
      process.in_flight = kMillisecond / 2;
      process.last_launch = process.last_wait = process.seen = now;
    }
  }
}

struct Cost {
  double ticks = 0, tick_us = 0, arbiter = 0, files = 0;  // the last two as parts of a core
};

// `active` containers of each GPU work.
Cost Measure(int file, int active) {
  std::vector<std::unique_ptr<Gpu>> gpus;
  for (int i = 0; i < kGpus; ++i) {
    gpus.push_back(std::make_unique<Gpu>());
    Fill(gpus.back().get(), i, active);
  }
  char block[kBlock];
  std::vector<Arbiter::Reading> due;
  Cost cost;
  const int64_t begin = 100 * kSecond;
  for (auto& gpu : gpus) {
    int64_t reads = 0;
    const double start = ProcessorSeconds();
    int64_t last = begin;
    for (int64_t now = begin; now < begin + kLength; now = gpu->next) {
      Work(gpu.get(), now, now - last);
      last = now;
      due.clear();
      for (const Arbiter::Reading& reading : gpu->readings) {
        if (gpu->arbiter.IsDue(now, reading.id)) due.push_back(reading);
      }
      const Arbiter::Outcome& outcome = gpu->arbiter.Tick(now, due);
      for (const auto& grant : outcome.grants) WriteGrant(grant, &gpu->limits[size_t(grant.id)]);
      for (const auto& part : outcome.parts) {
        WritePart(part, &gpu->parts[size_t(part.id) * kProcesses + part.slot]);
      }
      gpu->next = outcome.next;
      reads += int64_t(due.size());
      ++cost.ticks;
    }
    const double middle = ProcessorSeconds();
    for (int64_t i = 0; i < reads; ++i) {
      if (::pread(file, block, sizeof(block), 0) != ssize_t{sizeof(block)}) std::exit(1);
    }
    cost.arbiter += middle - start;
    cost.files += ProcessorSeconds() - middle;
  }
  const double seconds = double(kLength) / double(kSecond);
  cost.tick_us = cost.arbiter * 1e6 / cost.ticks;
  cost.ticks /= seconds;
  cost.arbiter /= seconds;
  cost.files /= seconds;
  return cost;
}

int Run() {
  char name[] = "/dev/shm/arbiter-bench-XXXXXX";
  const int file = ::mkstemp(name);
  if (file < 0 || ::unlink(name) != 0 || ::ftruncate(file, kBlock) != 0) {
    fmt::print(stderr, "arbiter_bench: cannot make a file in /dev/shm\n");
    return 1;
  }
  fmt::print("{} GPUs, {} containers of {} processes\n", kGpus, kContainers, kProcesses);
  for (const int active : {0, 1, 2, 4, kContainers / kGpus}) {
    const Cost cost = Measure(file, active);
    fmt::print(
        "{:2} active on each GPU: {:5.0f} ticks/s of {:5.2f} us, {:.2f} % of a core, and "
        "reading {:.2f} %\n",
        active, cost.ticks, cost.tick_us, 100 * cost.arbiter, 100 * cost.files);
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main() { return tessera::Run(); }
