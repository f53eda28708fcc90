// SPDX-License-Identifier: Apache-2.0
// Estimates how much device memory a container's processes use on one GPU beyond what their slots
// (src/limiter/region.h) count. A sample is taken once a second:
//
//   unaccounted = max(0, min over samples of (reported - allowance) - max over samples of held)
//   allowance   = min(kContextAllowance * processes, max(kContextTotalFloor, limit))
//
// `reported` is NVML's sum over the container's processes, `held` the sum of their slots; the
// samples are from the last kWindow. NVML and slots cannot be read at the same instant. So a single
// sample may count memory twice that is allocated or freed between the two readings, or that a
// dying process still has. The limiter would then refuse allocations that fit. So the number rises
// only if all samples of the window support it, and falls with the first sample that does not.
//
// The first context of a process is not counted. The limiter does not know its size. Moreover, a
// program must be able to run in a share of 256 MiB, and the context on a large GPU is larger. All
// contexts of many processes together may take as much memory as the share, and no more
// (docs/concepts/isolation.md).
//
// Does no I/O and reads no clock. Use from one thread.
#pragma once

#include <cstddef>
#include <deque>

#include "src/base/clock.h"
#include "src/base/units.h"

namespace tessera::agent {

class UnaccountedMemory {
 public:
  static constexpr size_t kSamples = 5;
  static constexpr Duration kWindow = std::chrono::seconds(8);
  // Memory for the context of one process: an upper bound by published figures (about 110 MiB on a
  // T4, 420 MiB on an A100, 500 MiB on an H100), not measured for Tessera yet.
  static constexpr Bytes kContextAllowance{int64_t{512} << 20};

  // All contexts of a container together may take at least this, however small its share is.
  static constexpr Bytes kContextTotalFloor{int64_t{1} << 30};

  struct MemorySample {
    Bytes reported;
    int processes = 0;
    Bytes held;   // maximum of the readings before and after NVML's
    Bytes limit;  // of the container
  };
  // Starts from what the agent measured before its restart. This amount stays in force until there
  // are kSamples samples, or a sample is below it. Otherwise the limiters would count this memory
  // as free after a restart of the agent.
  void Resume(Bytes bytes) { resumed_bytes_ = bytes; }
  void Add(MonotonicTime now, const MemorySample& sample);
  // Returns 0 if there is no sample, or if the oldest sample is older than kWindow, for example
  // because the driver did not answer.
  Bytes Get(MonotonicTime now) const;

 private:
  struct TimedMemory {
    MonotonicTime at;
    Bytes beyond_contexts;
    Bytes held;
  };
  std::deque<TimedMemory> samples_;  // the newest last, at most kSamples
  Bytes resumed_bytes_;
};

}  // namespace tessera::agent
