// SPDX-License-Identifier: Apache-2.0
// Fills a ClusterLedger from the API server and keeps it so: Nodes, Pods, PodDisruptionBudgets, and
// the quota's ConfigMap.
//
// Pods are followed once all nodes are there, so that each finds its node at once. Until synced()
// the ledger is not whole and nothing may be decided by it. While the API server is away the ledger
// stays as it was, and so do decisions: bindings made with it will fail there.
//
// PodDisruptionBudgets matter to preemption alone, so nothing waits for them.
//
// A quota that cannot be read is told as trouble, and the last good one stays; without the
// ConfigMap nothing is limited.
//
// Threads, callbacks: the client's runner. Ownership: client, ledger and delegate outlive it.
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
  std::string quota_name = "gpuquota";  // "": quotas are not followed
  std::string quota_key = "gpu_quota";
  std::string pods_ns;  // "": pods of all namespaces
  // Whether FindPod finds pods without GPUs and pods that have ended, too. They are most pods of a
  // cluster, and nothing is decided by them.
  bool all_pods = false;
  // Whether PodDisruptionBudgets and the labels of pods are followed, for ClusterLedger::Victims.
  bool budgets = false;
};

// An empty config where the map has no such key. INVALID_ARGUMENT names map and key.
Result<placement::QuotaConfig> QuotaIn(const kube::ConfigMapObject& map, std::string_view key);

class ClusterFeed {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // Everything has come once.
    virtual void OnSynced() = 0;
    // The ledger has changed by a pod, after it was synced; `pod` is what the API server has now.
    // Pods that FindPod does not find are not reported.
    virtual void OnPod(const kube::PodObject& pod) { (void)pod; }
    // It is gone or, without FeedOptions::all_pods, has ended.
    virtual void OnPodGone(const kube::PodObject& last) { (void)last; }
    // The ledger has what the quota's ConfigMap says; this ends its trouble.
    virtual void OnQuota() {}
    // For logs and metrics. `what` is "nodes", "pods", "quota" or "budgets".
    virtual void OnTrouble(std::string_view what, const Status& status) = 0;
    // Like OnTrouble, about an object that the API server has: it is invalid, and ignored until it
    // is corrected. `status` names it.
    virtual void OnInvalid(std::string_view what, const Status& status) { OnTrouble(what, status); }
    // The API server answers again.
    virtual void OnRecovered(std::string_view what) { (void)what; }
  };

  ClusterFeed(kube::Client& client, ClusterLedger& ledger, FeedOptions options, Delegate& delegate);
  ~ClusterFeed();
  ClusterFeed(const ClusterFeed&) = delete;
  ClusterFeed& operator=(const ClusterFeed&) = delete;

  bool synced() const;
  // As the API server has it; null where there is none. Key: "ns/name".
  const kube::PodObject* FindPod(const std::string& key) const;
  const kube::NodeObject* FindNode(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::ledger
