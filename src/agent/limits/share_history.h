// SPDX-License-Identifier: Apache-2.0
// How well the shares of compute have held in the last minute, from samples of about a second each:
//
//   mean    of what the container used
//   error   of a sample = used - limit, if that is above 0: more than it may use
//                       = -min(share - used, waiting), if that is below 0: less than its share,
//                         although its threads waited for so much GPU time at least
//   worst   the error that is farthest from 0
//
// `share` is what the container is due while others want the GPU, `limit` what it may use at most.
// A container that wants less than its share has no error.
//
// Pure; threads: one.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "src/agent/limits/container_usage.h"
#include "src/base/clock.h"

namespace tessera::agent {

class ShareHistory {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(60);

  // Parts of the GPU; `waiting` in threads, on average.
  struct Sample {
    double used = 0, waiting = 0, share = 0, limit = 0;
  };
  void Add(MonotonicTime now, const Sample& sample);
  // Nothing without samples of the last kWindow.
  std::optional<ShareRecord> Get(MonotonicTime now) const;

 private:
  struct Timed {
    MonotonicTime at;
    double used, error;
  };
  std::deque<Timed> samples_;  // the newest last
};

// The histories of all containers with a limit of compute.
class ShareHistories {
 public:
  // Adds `compute_use` of each to its history, and writes `share_record`. Histories of other
  // containers are dropped.
  void Update(MonotonicTime now, ContainerUses* uses);

 private:
  using Key = std::tuple<Uid, std::string, std::string>;  // pod, container, UUID
  std::map<Key, ShareHistory> histories_;
};

}  // namespace tessera::agent
