// SPDX-License-Identifier: Apache-2.0
// How long to wait before the next try: doubles from `first` to `most`, and a random half of it is
// taken off, so that a thousand agents do not come back in the same millisecond. Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "src/base/clock.h"

namespace tessera::kube {

class Backoff {
 public:
  // kFirst <= kMost; kMost stays below the two minutes in which an operator gets impatient.
  static constexpr Duration kFirst = std::chrono::milliseconds(200);
  static constexpr Duration kMost = std::chrono::seconds(30);

  explicit Backoff(uint64_t seed = std::random_device{}()) : random_(seed) {}

  // Counts a failure and gives the wait: in [w/2, w] for w = kFirst * 2^(failures-1), at most kMost.
  Duration Next() {
    const Duration whole = std::min(kMost, kFirst * (int64_t{1} << std::min(failures_, 20)));
    ++failures_;
    std::uniform_int_distribution<int64_t> half(whole.count() / 2, whole.count());
    return Duration(half(random_));
  }
  void Reset() { failures_ = 0; }
  int failures() const { return failures_; }

 private:
  std::minstd_rand random_;
  int failures_ = 0;
};

}  // namespace tessera::kube
