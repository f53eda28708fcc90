// SPDX-License-Identifier: Apache-2.0
// Arrival times and lifetimes for a list of pods with recorded times: as recorded, or as a steady
// load for a whole cluster. Recorded lists of large clusters often contain only a small part of the
// pods. Included only in src/replay. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/random.h"
#include "src/replay/trace.h"

namespace tessera::replay {

struct Arrival {
  uint32_t pod = 0;      // position in the list
  int64_t created = 0;   // seconds
  int64_t lifetime = 0;  // seconds
};

struct Sample {
  std::vector<Arrival> arrivals;  // in order of time
  int64_t begin = 0, end = 0;     // of the observed time, in seconds
};

// The list unchanged; the observed time ends with the last deletion.
Sample AsRecorded(const std::vector<TracePod>& pods);

// In total the pods of SteadyLoad request this multiple of all GPUs: each pod of the list arrives
// once, and random pods of the list arrive again.
inline constexpr int kRequestedMultiple = 20;
// Longer lifetimes are cut to this value, because they would be many times the observed time.
inline constexpr int64_t kMaxLifetimeSeconds = 6 * 3600;

// Random variation of arrival times, as a fraction of the observed time.
inline constexpr double kArrivalJitter = 0.1;

// A steady load: the requested GPU time is `load` percent of the GPU time of `capacity` thousandths
// during the arrivals. Pods arrive in the order of their creation at an even rate of GPU time,
// because recorded rates vary too much. Arrival times vary by kArrivalJitter, so that copies of a
// pod do not arrive together; lifetimes vary by a tenth. REQUIRES: at least one pod has a GPU for
// some time.
Sample SteadyLoad(const std::vector<TracePod>& pods, int64_t capacity, int load, Random& random);

// The peak of the GPUs in use, in thousandths, if no pod had to wait.
int64_t PeakMilli(const std::vector<TracePod>& pods, const std::vector<Arrival>& arrivals);

}  // namespace tessera::replay
