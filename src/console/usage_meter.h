// SPDX-License-Identifier: Apache-2.0
// GPU-hours of each namespace, and of each value of one label of pods: the allocated hours, and how
// many of them were idle (no kernel ran). Does no I/O and reads no clock: the caller passes the
// times.
//
// Allocation comes from the ledger: each Tick counts what pods hold now for the time since the last
// Tick, so the start and the end of a pod are counted to within one Tick. Idle time comes from
// the counters of the agents (docs/tasks/monitor.md), weighted by what the pod holds of the GPU.
// Agents know the idle time of some containers only, and the last interval before a container ends
// is not counted. So `measured` says for how many of the GPU-hours the idle time is known.
//
// The state is kept in memory only, so a restart begins at zero. Bounds: kMaxRows rows of some
// hundred bytes each, beyond which the pods of further namespaces and labels are counted together
// in one row; kMaxSeries counters. Threads: one.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/ledger/ledger.h"

namespace tessera::console {

class UsageMeter {
 public:
  static constexpr Duration kTick = std::chrono::seconds(10);
  static constexpr size_t kMaxRows = 5000;
  static constexpr size_t kMaxSeries = 50'000;
  // A longer gap is not counted: the machine slept, or the cluster could not be read.
  static constexpr Duration kLongestGap = std::chrono::minutes(2);

  // `label`: key of a label of pods, which the feed must keep (FeedOptions::keeps_pod_labels).
  explicit UsageMeter(std::string label) : label_(std::move(label)) {}

  // Call every kTick.
  void Tick(const ledger::ClusterLedger& ledger, MonotonicTime now, WallTime wall_now);
  // Counts the allocated and idle seconds on the metrics page of a node's agent. Skips other lines,
  // and pods that are not on the node.
  void TakePage(const ledger::ClusterLedger& ledger, const std::string& node,
                std::string_view metrics);
  // Why idle time is not known; OK if the agents were read.
  void set_problem(Status problem) { problem_ = std::move(problem); }

  // {"since":1700000000,"label":"app","rows":[{"namespace":…,"value":…,"allocated":12.5,
  // "measured":10.0,"idle":2.5}],"problem":…} in GPU-hours. Pods without the label have the value
  // "". The row of the pods beyond kMaxRows has the namespace "", and is included only with `all`.
  Json ToJson(const std::function<bool(const std::string& ns)>& visible, bool all) const;

 private:
  using Key = std::pair<std::string, std::string>;  // namespace, value of the label
  struct UsageRow {                                 // in GPU-seconds
    double allocated = 0, measured = 0, idle = 0;
  };
  struct Counters {  // seconds of one container on one GPU
    Uid pod;
    std::optional<double> allocated, idle;
  };
  using Series = std::map<std::string, Counters, std::less<>>;  // by labels

  Key KeyOf(const ledger::PodEntry& pod) const;
  UsageRow& RowOf(const Key& key);
  void AddCounters(const ledger::PodEntry& pod, const std::string& labels, const Counters& now);

  const std::string label_;
  std::map<Key, UsageRow> rows_;
  Series series_;
  std::optional<MonotonicTime> last_tick_;
  WallTime since_{};
  Status problem_;
};

}  // namespace tessera::console
