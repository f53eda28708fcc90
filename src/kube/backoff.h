// SPDX-License-Identifier: Apache-2.0
// Waits between retries. They double from `first` to `max`, and up to half of each wait is
// subtracted at random, so that a thousand agents do not retry in the same millisecond. Threads:
// one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "src/base/clock.h"

namespace tessera::kube {

// The next wait after `failures` + 1 consecutive failures: random in [w/2, w] with w = min(max,
// first * 2^failures).
template <typename Generator>
Duration JitteredWait(Duration first, Duration max, int failures, Generator& random) {
  const Duration whole = std::min(max, first * (int64_t{1} << std::min(failures, 20)));
  std::uniform_int_distribution<int64_t> upper_half(whole.count() / 2, whole.count());
  return Duration(upper_half(random));
}

class Backoff {
 public:
  // kFirst <= kMax. kMax stays below two minutes, so that recovery after an outage is quick.
  static constexpr Duration kFirst = std::chrono::milliseconds(200);
  static constexpr Duration kMax = std::chrono::seconds(30);

  explicit Backoff(uint64_t seed = std::random_device{}()) : random_(seed) {}

  // Counts a failure and returns the wait before the next attempt.
  Duration Next() { return JitteredWait(kFirst, kMax, failures_++, random_); }
  void Reset() { failures_ = 0; }

 private:
  std::minstd_rand random_;
  int failures_ = 0;
};

}  // namespace tessera::kube
