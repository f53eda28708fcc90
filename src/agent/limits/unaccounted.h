// SPDX-License-Identifier: Apache-2.0
// How much device memory the processes of a container have on one GPU beyond what their slots hold
// (src/limiter/region.h), from samples that are taken once a second:
//
//   unaccounted = max(0, min over samples of (reported - allowance) - max over samples of held)
//   allowance   = min(kContextAllowance * processes, max(kLeastTogether, limit))
//
// `reported` is NVML's sum over the container's processes, `held` the sum of their slots; the
// samples are those of the last kWindow. NVML and slots cannot be read at the same instant. Memory
// that is freed or allocated between the two readings, or that a dying process still has, would
// otherwise count twice and make the limiter refuse what fits. So the number rises only on evidence
// of the whole window, and falls with the first sample that does not support it.
//
// A process's first context is not counted: its size is not known to the limiter, and a share of
// 256 MiB, which is less than the context of a large GPU, must still serve a program. All contexts
// of many processes together may take as much as the share, and no more.
// docs/concepts/isolation.md.
//
// Pure; threads: one.
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
  // For the context of one process. An upper bound for the GPUs of today by what users publish
  // (some 110 MiB on a T4, 420 MiB on an A100, 500 MiB on an H100); not measured by us yet.
  static constexpr Bytes kContextAllowance{int64_t{512} << 20};

  // All contexts of a container may take that, however small its share is.
  static constexpr Bytes kLeastTogether{int64_t{1} << 30};

  struct Sample {
    Bytes reported;
    int processes = 0;
    Bytes held;   // the most of the readings before and after NVML's
    Bytes limit;  // of the container
  };
  // What was unaccounted when the agent stopped. It holds as long as no sample is below it, until
  // there are samples enough: so an agent that starts again gives no memory away meanwhile.
  void Resume(Bytes bytes) { resumed_ = bytes; }
  void Add(MonotonicTime now, const Sample& sample);
  // 0 without samples of the last kWindow: also while the driver does not answer.
  Bytes Get(MonotonicTime now) const;

 private:
  struct Timed {
    MonotonicTime at;
    Bytes beyond_contexts;
    Bytes held;
  };
  std::deque<Timed> samples_;  // the newest last, at most kSamples
  Bytes resumed_;
};

}  // namespace tessera::agent
