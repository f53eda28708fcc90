// SPDX-License-Identifier: Apache-2.0
// Pods that kube-scheduler works on: the nodes that filter named for each, and the GPUs that are
// held for it until it is bound. A pod may only be bound to one of these nodes.
//
// kube-scheduler may keep a pod in Permit or PreBind for minutes after its node was chosen: until
// the other pods of its group have nodes, or its volumes are there. It says nothing to an extender
// meanwhile, nor when it gives up. What the API server shows of the pod tells:
//
//   - An attempt that fails is written into the condition PodScheduled, unless the same reason and
//     message stand there already.
//   - From 1.35 on, status.nominatedNodeName is the chosen node while the pod is in Permit or
//     PreBind, and is cleared when the attempt fails.
//
// So where a failure would be seen, GPUs are held until it is, and `limit` at most; else (a pod
// that failed before and has no nominated node) for `unproven`. A pod that the watch does not show
// with its UID, unbound, holds nothing: its GPUs are held when it is shown.
//
// Threads: the runner's. Ownership: all that is given in outlives it. Bounds: kMostPods pods, those
// of longest ago are dropped; a bit for each node and pod.
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
  Duration unproven = std::chrono::seconds(5);
  // kube-scheduler's own bounds: 15 minutes in Permit, 10 for volumes in PreBind.
  Duration limit = std::chrono::minutes(25);
};

class Holds {
 public:
  static constexpr size_t kMostPods = 16384;

  using Question = ledger::ClusterLedger::Question;
  // As the feed has it; null where it has none. Key: "ns/name".
  using FindPod = std::function<const kube::PodObject*(const std::string& key)>;

  Holds(ledger::ClusterLedger& ledger, const Binder& binder, const Clock& clock, FindPod find_pod,
        HoldOptions options);

  // Filter named the nodes whose NodeId is set in `fits`; earlier answers about the pod are void.
  void Name(const kube::PodObject& pod, std::vector<bool> fits);
  // Whether filter named the node, and neither was the pod bound since nor its attempt given up.
  bool Named(const Uid& uid, std::string_view node) const;
  // Holds the node's GPUs for a pod for which it was named. `pod` as kube-scheduler has it.
  void Hold(const kube::PodObject& pod, const Question& question, std::string_view node);
  void Drop(const Uid& uid);

  // The feed has news of the pod.
  void OnPod(const kube::PodObject& pod);
  // Call it every second or so.
  void Tick();

 private:
  struct Pod {
    MonotonicTime named;     // when
    std::vector<bool> fits;  // by NodeId; a node that inherits the id of a removed one counts as it
    std::string node;        // that is held, or will be once the pod is shown
    bool shown = false;      // by the watch, so that it may hold
    uint64_t failure = 0;    // of an earlier attempt, as kube-scheduler had it
    uint64_t shown_failure = 0;
    std::string nominated;  // as the watch shows it
  };
  using Pods = std::map<Uid, Pod>;

  // The feed's pod of this name and UID, where it still waits for a node.
  const kube::PodObject* Waiting(const kube::PodObject& pod) const;
  Duration TimeFor(const Pod& held) const;
  void Take(const kube::PodObject& pod, const Pod& held);

  ledger::ClusterLedger& ledger_;
  const Binder& binder_;
  const Clock& clock_;
  const FindPod find_pod_;
  const HoldOptions options_;
  Pods pods_;
};

}  // namespace tessera::scheduler
