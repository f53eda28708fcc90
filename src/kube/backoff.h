// SPDX-License-Identifier: Apache-2.0
// How long to wait before the next try: doubles from `first` to `most`, and a random half of it is
// taken off, so that a thousand agents do not come back in the same millisecond. Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "src/base/clock.h"

namespace tessera::kube {

// The wait after so many failures in a row before this one: in [w/2, w] for w = first * 2^failures,
// at most `most`.
template <typename Generator>
Duration JitteredWait(Duration first, Duration most, int failures, Generator& random) {
  const Duration whole = std::min(most, first * (int64_t{1} << std::min(failures, 20)));
  std::uniform_int_distribution<int64_t> half(whole.count() / 2, whole.count());
  return Duration(half(random));
}

class Backoff {
 public:
  // kFirst <= kMost; kMost stays below the two minutes in which an operator gets impatient.
  static constexpr Duration kFirst = std::chrono::milliseconds(200);
  static constexpr Duration kMost = std::chrono::seconds(30);

  explicit Backoff(uint64_t seed = std::random_device{}()) : random_(seed) {}

  // Counts a failure and gives the wait.
  Duration Next() { return JitteredWait(kFirst, kMost, failures_++, random_); }
  void Reset() { failures_ = 0; }
  int failures() const { return failures_; }

 private:
  std::minstd_rand random_;
  int failures_ = 0;
};

}  // namespace tessera::kube
