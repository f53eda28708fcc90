// SPDX-License-Identifier: Apache-2.0
// How exactly the shares of compute were kept in the last minute, from samples of about a second
// each:
//
//   mean    average of the used fraction, by the limiters and by the driver
//   error   of a sample: used - limit, if positive: more than the container may use
//                        -min(share - used, waiting), if negative: less than its share,
//                        although its threads waited for at least as much GPU time
//   worst   the error with the largest absolute value
//
// `share` is the fraction of the GPU that the container gets while others want the GPU, `limit` the
// most that it may use. A container that wants less than its share has no error, and no sample just
// after or before an idle one has an error below 0.
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
    std::optional<double> by_driver;  // nullopt: the driver reports nothing
  };
  void Add(MonotonicTime now, const ShareSample& sample);
  // Nullopt if no sample is within kWindow.
  std::optional<ShareRecord> Get(MonotonicTime now) const;

 private:
  struct TimedShare {
    MonotonicTime at;
    double used, error;
    std::optional<double> by_driver;
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
