// SPDX-License-Identifier: Apache-2.0
// When the pods of a list with times come, and for how long they run: as they did, or as a load
// for a whole cluster, which a trace seldom is: lists of large clusters hold a small part of their
// pods. Private to this room. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/random.h"
#include "src/replay/trace.h"

namespace tessera::replay {

struct Arrival {
  uint32_t pod = 0;  // position in the list
  int64_t created = 0;
  int64_t life = 0;  // seconds
};

struct Sample {
  std::vector<Arrival> arrivals;  // in order of time
  int64_t begin = 0, end = 0;     // of the time that is looked at
};

// The list as it is; the time ends with the last deletion.
Sample AsRecorded(const std::vector<TracePod>& pods);

// Pods that ask for this many times all GPUs: the list, and random ones of it once more.
inline constexpr int kTurnovers = 20;
// Longer lives are cut to this: they would outlast the time that is looked at many times over.
inline constexpr int64_t kLongestLife = 6 * 3600;

// A steady load: the GPU time that pods ask for is `load` percent of what `capacity` thousandths
// have in the time in which they come. They come in the order of their creation and at an even
// rate of GPU time, as the rate of a recorded list changes too much. Times are blurred by kBlur of
// all, so that copies of one pod do not come together, and lives by a tenth. REQUIRES: some pod has
// a GPU for some time.
inline constexpr double kBlur = 0.1;
Sample Steady(const std::vector<TracePod>& pods, int64_t capacity, int load, Random& random);

// The most thousandths of GPUs that the pods would have at a time if none of them waited.
int64_t PeakMilli(const std::vector<TracePod>& pods, const std::vector<Arrival>& arrivals);

}  // namespace tessera::replay
