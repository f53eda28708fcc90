// SPDX-License-Identifier: Apache-2.0
// Why pods wait, for metrics: one reason for each pod, from the answers of its last filter.
//
//   not-tried   kube-scheduler has not filtered for the pod in this term
//   not-bound   some node fits, and the pod is not bound: another plugin rejects it, or binding
//               fails
//   quota, reserved, or an unfit reason (placement::MetricLabelOf)   no node fits
//
// Threads: one. Cost: some 2 ns for each node of a filter, 100 bytes for each pod.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/uid.h"
#include "src/ledger/ledger.h"

namespace tessera::scheduler {

// Counts why the nodes of one filter do not fit a pod.
class VerdictKinds {
 public:
  void Add(const ledger::Verdict& verdict);
  // The reason that is closest to a fit, in this order: GPUs are free, but not for this pod (quota,
  // reserved); an eviction can free GPUs; no eviction can free GPUs; the node has no GPUs. Among
  // equally close reasons, returns the reason of most nodes.
  std::string_view Reason() const;

 private:
  struct KindCount {
    std::string_view kind;
    bool unresolvable = false;
    size_t nodes = 0;
  };
  static int RankOf(const KindCount& count);

  bool fits_ = false;
  std::vector<KindCount> counts_;
  size_t last_added_ = 0;  // index of the count that the last Add changed
};

class WaitReasons {
 public:
  static constexpr std::string_view kNotTried = "not-tried";
  static constexpr std::string_view kNotBound = "not-bound";
  // A pod that the watch has not shown after this time is forgotten.
  static constexpr Duration kForgetAfter = std::chrono::minutes(1);

  // REQUIRES: `reason` is a constant of the program.
  void Set(const Uid& uid, std::string_view reason, MonotonicTime now) {
    reasons_.insert_or_assign(uid, LastReason{reason, now});
  }
  // nullopt if kube-scheduler has not filtered for the pod.
  std::optional<std::string_view> Find(const Uid& uid) const;
  // Forgets pods that no longer wait. Cost: once in kForgetAfter a pass over all pods.
  void ForgetPodsNotWaiting(const ledger::ClusterLedger& ledger, MonotonicTime now);
  size_t size() const { return reasons_.size(); }

 private:
  struct LastReason {
    std::string_view reason;
    MonotonicTime recorded_at{};
  };
  std::map<Uid, LastReason> reasons_;
  MonotonicTime next_cleanup_{};
};

}  // namespace tessera::scheduler
