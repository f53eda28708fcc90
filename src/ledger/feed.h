// SPDX-License-Identifier: Apache-2.0
// Fills a ClusterLedger from the API server and keeps it current: Nodes, Pods,
// PodDisruptionBudgets, and the quota's ConfigMap.
//
// Pods are watched once all nodes are known, so that each pod finds its node at once. Until
// synced() the ledger is incomplete and must not be used for decisions. While the API server is
// unreachable, the ledger keeps its last state and decisions continue. Outdated decisions do no
// harm, because the API server then rejects their bindings.
//
// Only preemption uses PodDisruptionBudgets, so synced() does not wait for them.
//
// An unreadable quota is reported as an error, and the last valid quota stays in force. Without the
// ConfigMap nothing is limited.
//
// Threads: the client's runner, which also runs the callbacks. Ownership: client, ledger and
// delegate outlive the feed.
#pragma once

#include <memory>
#include <string>

#include "src/kube/client.h"
#include "src/kube/informer.h"
#include "src/kube/objects.h"
#include "src/ledger/ledger.h"

namespace tessera::ledger {

struct FeedOptions {
  std::string quota_ns = "kube-system";
  std::string quota_name = "gpuquota";  // "": quotas are not watched
  std::string quota_key = "gpu_quota";
  std::string pods_ns;  // "": pods of all namespaces
  // Label selectors; "": all objects. The ledger lacks objects that they do not select.
  std::string node_selector, pod_selector;
  // Whether pods without GPUs and pods that have ended are watched too, so that FindPod finds them.
  // They are most pods of a cluster, but no decision depends on them.
  bool watches_all_pods = false;
  // Whether PodDisruptionBudgets and the labels of pods are watched, for ClusterLedger::Victims.
  bool watches_budgets = false;
  // Whether the ledger keeps the labels of pods (PodEntry::labels). With watches_budgets it always
  // keeps them.
  bool keeps_pod_labels = false;
  // Whether the ledger keeps what ClusterLedger::WhyLeftOut needs: the constraints of pods, and the
  // labels and taints of nodes.
  bool keeps_scheduling_constraints = false;
  // Whether Delegate::OnPodRun is called.
  bool reports_pod_runs = false;
  // Whether FindPod and FindNode find objects. If false, the feed keeps only their UIDs, which
  // saves several kilobytes for each object.
  bool keeps_objects = true;
};

// An empty config if the map does not have the key. INVALID_ARGUMENT names map and key.
Result<placement::QuotaConfig> QuotaIn(const kube::ConfigMapObject& map, std::string_view key);

class ClusterFeed {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // All nodes, pods and the quota have been received once.
    virtual void OnSynced() = 0;
    // After the first sync: the ledger has changed because a node was added, changed or removed.
    virtual void OnNode(const std::string& name) { (void)name; }
    // After the first sync: the ledger has changed because a pod changed. `pod` is the API server's
    // current object. Without FeedOptions::watches_all_pods, not called for pods without GPUs.
    virtual void OnPod(const kube::PodObject& pod) { (void)pod; }
    // With FeedOptions::reports_pod_runs, also before the first sync: a pod with GPUs was added or
    // changed.
    virtual void OnPodRun(const kube::PodObject& pod) { (void)pod; }
    // The pod was deleted or, without FeedOptions::watches_all_pods, has ended.
    virtual void OnPodGone(const Uid& uid) { (void)uid; }
    // The ledger has the current quota, which is empty without the ConfigMap. An earlier error of
    // "quota" is over.
    virtual void OnQuota() {}
    // For logs and metrics. `what` is "nodes", "pods", "quota" or "budgets".
    virtual void OnError(std::string_view what, const Status& status) = 0;
    // Like OnError, for an object of the API server that is invalid: the object is ignored until it
    // is corrected. `status` names it.
    virtual void OnInvalid(std::string_view what, const Status& status) { OnError(what, status); }
    // The API server answers again.
    virtual void OnRecovered(std::string_view what) { (void)what; }
  };

  ClusterFeed(kube::Client& client, ClusterLedger& ledger, FeedOptions options, Delegate& delegate);
  ~ClusterFeed();
  ClusterFeed(const ClusterFeed&) = delete;
  ClusterFeed& operator=(const ClusterFeed&) = delete;

  bool synced() const;
  // The API server's object; null if the API server has no such pod. Key: "ns/name".
  const kube::PodObject* FindPod(const std::string& key) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::ledger
