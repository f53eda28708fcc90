// SPDX-License-Identifier: Apache-2.0
// Constants of the compute limit that both sides know, and what they must obey. In nanoseconds.
#pragma once

#include <cstdint>

namespace tessera::limiter {

inline constexpr int64_t kMicrosecond = 1'000;
inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

// Taken in advance. Two events cost about 2 us of GPU time, which must stay below 0.5 % of a slice.
inline constexpr int64_t kSlice = 400 * kMicrosecond;
// The same while the launches of one key differ much: more samples make up for their spread.
inline constexpr int64_t kNoisySlice = 120 * kMicrosecond;
// In flight of one process. At least a tick and a wake-up, or the GPU idles between two launches.
inline constexpr int64_t kWindow = 4 * kMillisecond;
// The same of a low class, which must be off the GPU within 10 ms of a stop.
inline constexpr int64_t kLowWindow = 2 * kMillisecond;
// What an allowance may save up. A window of T exceeds its limit by at most this and the longest
// kernel, so it is below 2 % of a second. Bursts that use less than the limit must fit into it.
inline constexpr int64_t kBucket = 18 * kMillisecond;
// The driver's turns between processes.
inline constexpr int64_t kQuantum = 2 * kMillisecond;
// How long the agent's word counts without being renewed. At least ten ticks.
inline constexpr int64_t kLease = 50 * kMillisecond;

// The C++ library is not there at run time, so what is used of it is little.
constexpr int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t Most(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace tessera::limiter
