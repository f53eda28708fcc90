// SPDX-License-Identifier: Apache-2.0
// How closely a container followed its share of compute in the last minute. Each sample covers
// about a second:
//
//   mean    average of the used fraction, by the limiters and by the driver
//   error   of a sample. Above 0: used - limit, the use beyond the limit.
//           Below 0: -min(share - used, waiting), the part of the share that the container did not
//           get although its threads waited for it
//   worst   the error with the largest absolute value
//
// `share` is the fraction of the GPU that the container gets while others want the GPU, `limit` the
// most that it may use. A container that wants less than its share has no error. A sample next to
// an idle sample has no error below 0.
//
// Does no I/O and reads no clock. Use from one thread.
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

  // Fractions of the GPU; `waiting` is an average number of threads.
  struct ShareSample {
    double used = 0, waiting = 0, share = 0, limit = 0;
    std::optional<double> used_by_driver;  // nullopt: the driver reports nothing
  };
  void Add(MonotonicTime now, const ShareSample& sample);
  // Nullopt if no sample is within kWindow.
  std::optional<ShareRecord> Get(MonotonicTime now) const;

 private:
  struct TimedShare {
    MonotonicTime at;
    double used, error;
    std::optional<double> used_by_driver;
  };
  std::deque<TimedShare> samples_;  // the newest last
  std::optional<ShareSample> last_;
};

// The histories of all containers with a limit of compute.
class ShareHistories {
 public:
  // Adds `compute_use` of each container to its history, and sets `share_record`. Removes the
  // histories of other containers.
  void Update(MonotonicTime now, ContainerUses* uses);

 private:
  using Key = std::tuple<Uid, std::string, std::string>;  // pod, container, UUID
  std::map<Key, ShareHistory> histories_;
};

}  // namespace tessera::agent
