// SPDX-License-Identifier: Apache-2.0
// Constants that the limiter and the agent share for compute limits, with the inequalities that
// they obey. All are in nanoseconds.
#pragma once

#include <cstdint>

namespace tessera::limiter {

inline constexpr int64_t kMicrosecond = 1'000;
inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

// GPU time that a thread takes in advance. Two events cost about 2 us, at most 0.5 % of a slice.
inline constexpr int64_t kSlice = 400 * kMicrosecond;
// Replaces kSlice while the launches of a key differ much: more samples compensate for their
// spread.
inline constexpr int64_t kNoisySlice = 120 * kMicrosecond;
// Maximum work in flight of one process. At least a tick and the delay of a wake-up; otherwise the
// GPU would idle between launches.
inline constexpr int64_t kWindow = 4 * kMillisecond;
// Replaces kWindow for a low class, which must leave the GPU within 10 ms after a stop.
inline constexpr int64_t kLowWindow = 2 * kMillisecond;
// GPU time that an allowance may save up; less than 2 % of a second. Use within any window exceeds
// the limit by at most kBucket and the longest kernel. kBucket must hold the bursts of programs
// that use less than their limit on average.
inline constexpr int64_t kBucket = 18 * kMillisecond;
// Length of the driver's turns between processes.
inline constexpr int64_t kQuantum = 2 * kMillisecond;
// How long the agent's values are valid without renewal; at least ten ticks.
inline constexpr int64_t kLease = 50 * kMillisecond;

// The C++ library is missing at run time, so the limiter avoids <algorithm>.
constexpr int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace tessera::limiter
