// SPDX-License-Identifier: Apache-2.0
// Scheduling attempts of kube-scheduler: the nodes that the extender's filter call returned for
// each pod, and the GPUs held for the pod until it is bound. A pod may only be bound to one of
// these nodes.
//
// kube-scheduler may keep a pod in Permit or PreBind for minutes after its node was chosen, until
// the other pods of its group have nodes or its volumes are ready. It does not notify an extender
// during this time, nor when it gives up. The end of an attempt is detected from the pod's status:
//
// - A failed attempt is written into condition PodScheduled, unless the condition already has the
//   same reason and message.
// - Since Kubernetes 1.35, status.nominatedNodeName is the chosen node while the pod is in Permit
//   or PreBind, and is cleared when the attempt fails.
//
// So if a failure will be visible, GPUs are held until the pod's status shows it, at most for
// `limit`. A failure will be invisible if the pod failed before and has no nominated node; the GPUs
// are then held for `limit_if_failure_invisible`. No hold starts before the watch shows the unbound
// pod with the same UID.
//
// Threads: the runner's. Ownership: all arguments outlive this object. Bounds: kMaxAttempts pods;
// the oldest are dropped. A pod takes one bit for each node.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/uid.h"
#include "src/kube/objects.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/binder.h"

namespace tessera::scheduler {

struct HoldOptions {
  Duration limit_if_failure_invisible = std::chrono::seconds(5);
  // kube-scheduler's own bounds: 15 minutes in Permit, 10 for volumes in PreBind.
  Duration limit = std::chrono::minutes(25);
};

class Holds {
 public:
  static constexpr size_t kMaxAttempts = 16384;

  using Query = ledger::ClusterLedger::Query;
  // The feed's pod; null if the feed has no such pod. Key: "ns/name".
  using FindPod = std::function<const kube::PodObject*(const std::string& key)>;

  Holds(ledger::ClusterLedger& ledger, const Binder& binder, const Clock& clock, FindPod find_pod,
        HoldOptions options);

  // Records that filter named the nodes whose NodeId is set in `fitting_nodes`. Replaces earlier
  // results.
  void RecordFitting(const kube::PodObject& pod, std::vector<bool> fitting_nodes);
  // Whether filter named the node for the pod and the attempt is still open: the pod is not bound,
  // and kube-scheduler has not given up.
  bool HasOpenAttempt(const Uid& uid, std::string_view node) const;
  // Holds the node's GPUs for a pod. `pod` is kube-scheduler's object. REQUIRES: filter named the
  // node.
  void Hold(const kube::PodObject& pod, const Query& query, std::string_view node);
  void EndAttempt(const Uid& uid);

  // The feed has received a change of the pod.
  void OnPod(const kube::PodObject& pod);
  // Call about once a second.
  void Tick();

 private:
  struct SchedulingAttempt {
    MonotonicTime filtered_at;  // time of the filter
    // By NodeId; a node that reuses the id of a removed node counts as the removed node.
    std::vector<bool> fitting_nodes;
    std::string node;  // node whose GPUs are held, or will be held once the watch shows the pod
    bool received = false;  // the watch has shown the pod, so it may hold GPUs
    // PodObject::failed_attempt_hash in kube-scheduler's request, and in the watch.
    uint64_t failed_hash_in_request = 0;
    uint64_t failed_hash_in_watch = 0;
    std::string nominated_node;  // in the watch
  };
  using Attempts = std::map<Uid, SchedulingAttempt>;

  // The feed's pod of this name and UID, if it still waits for a node; else null.
  const kube::PodObject* FindWaiting(const kube::PodObject& pod) const;
  // How much longer the attempt's GPUs may be held, counted from now.
  Duration RemainingHoldTime(const SchedulingAttempt& attempt) const;
  void AssumeGpus(const kube::PodObject& pod, const SchedulingAttempt& attempt);

  ledger::ClusterLedger& ledger_;
  const Binder& binder_;
  const Clock& clock_;
  const FindPod find_pod_;
  const HoldOptions options_;
  Attempts attempts_;
};

}  // namespace tessera::scheduler
