// SPDX-License-Identifier: Apache-2.0
// Follows a cluster: a ledger with its feed, and the nodes and pods as JSON texts with a version.
// All viewers share the model, so the API server has one watch of each kind for any number of
// viewers.
//
// A change after a pause is published at once, as a new version. The changes of the next
// kPublishInterval are then collected and published together. Objects whose text has not changed
// are left out. The model keeps only a hash of each text, because the texts of a large cluster
// would take more memory than all other state. A text is generated when a viewer needs it. The
// reasons of waiting pods depend on the whole cluster, so they are computed at most every
// kReasonsInterval.
//
// While the API server is unreachable or hangs, the model keeps the last state, and outage() says
// since when and why.
//
// Threads: the client's runner. The client and the delegate must outlive the model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/console/json_of.h"
#include "src/kube/client.h"
#include "src/ledger/feed.h"
#include "src/ledger/ledger.h"
#include "src/ledger/outages.h"
#include "src/ledger/server_probe.h"
#include "src/placement/policy.h"

namespace tessera::console {

struct ModelOptions {
  std::string policy{placement::kDefaultPolicy};
  OtherTenantsDetail other_tenants = OtherTenantsDetail::kShares;
  ledger::FeedOptions feed;
  Duration probe_interval = ledger::ServerProbe::kInterval;
};

class ClusterModel final : private ledger::ClusterFeed::Delegate {
 public:
  static constexpr Duration kPublishInterval = std::chrono::milliseconds(50);
  static constexpr Duration kReasonsInterval = std::chrono::seconds(1);

  struct Changes {
    std::set<std::string> nodes;  // names
    std::set<Uid> pods;
  };
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // Called for each new version. An object of `changes` that is not in nodes() or pods() has been
    // deleted.
    virtual void OnChanges(const Changes& changes) = 0;
    // outage() or synced() has changed. After a restart of the feed every viewer needs a snapshot.
    virtual void OnState() = 0;
    // A watch of `collection`, such as "pods", has failed; it is retried.
    virtual void OnWatchError(std::string_view /*collection*/) {}
  };

  ClusterModel(kube::Client& client, ModelOptions options, Delegate& delegate);
  ClusterModel(const ClusterModel&) = delete;
  ClusterModel& operator=(const ClusterModel&) = delete;

  bool synced() const { return synced_; }
  uint64_t version() const { return version_; }

  // nullopt while the API server is reachable.
  std::optional<ledger::Outage> outage() const { return outages_.Longest(); }
  // Why the quotas are unknown; OK if they are known.
  const Status& quota_problem() const { return quota_problem_; }

  struct PublishedPod {
    std::string node;  // "": none
    size_t hash = 0;   // of the pod's text
  };
  // The published objects. nodes() maps a node's name to the hash of its text.
  const std::map<std::string, size_t>& nodes() const { return nodes_; }
  const std::map<Uid, PublishedPod>& pods() const { return pods_; }
  // Publishes the collected changes at once. Call it before texts are sent to a viewer, so that the
  // texts belong to version(). Otherwise a viewer could receive, and keep, a text that is never
  // published because the object changes back before the next version.
  void Flush();
  // REQUIRES: the object is published. `sees_namespace`: as in ViewerRights.
  std::string NodeText(const std::string& name,
                       const std::function<bool(const std::string& ns)>& sees_namespace) const;
  std::string PodText(const Uid& uid) const;
  const std::string& NamespaceOf(const Uid& uid) const {
    return ledger_->pods().at(uid).request.ns;
  }
  // Namespaces with pods that request GPUs.
  std::set<std::string> Namespaces() const;

  const ledger::FeedOptions& feed_options() const { return options_.feed; }
  // REQUIRES: synced().
  ledger::ClusterLedger& ledger() { return *ledger_; }

 private:
  void StartFeed(device::MemoryUnit unit, bool with_quota);
  void StartFeedLater(device::MemoryUnit unit, bool with_quota);
  void OnPodChanged(const Uid& uid);
  void SchedulePublish();
  void Publish();
  // Publishes `pending_`, and returns the objects whose text has changed.
  Changes UpdatePublished();
  // The pod's node as last published; "": none.
  std::string NodeOf(const Uid& uid) const;
  bool PublishNode(const std::string& name);
  bool PublishPod(const Uid& uid);
  void ScheduleReasons();
  void UpdateReasons();
  std::string ReasonOf(const ledger::PodEntry& pod);
  void SetOutage(std::string_view collection, const Status& status, WallTime since);

  void OnSynced() override;
  void OnNode(const std::string& name) override;
  void OnPod(const kube::PodObject& pod) override { OnPodChanged(pod.meta.uid); }
  void OnPodRun(const kube::PodObject& pod) override;
  void OnPodGone(const Uid& uid) override {
    runs_.erase(uid);
    OnPodChanged(uid);
  }
  void OnQuota() override;
  void OnError(std::string_view collection, const Status& status) override;
  void OnInvalid(std::string_view collection, const Status& status) override;
  void OnRecovered(std::string_view collection) override;

  kube::Client& client_;
  TaskRunner& runner_;
  const ModelOptions options_;
  Delegate& delegate_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
  std::unique_ptr<ledger::ClusterFeed> feed_;
  ledger::ServerProbe probe_;
  bool with_quota_ = true;
  bool synced_ = false;
  uint64_t version_ = 0;
  ledger::Outages outages_;
  Status quota_problem_;
  std::map<std::string, size_t> nodes_;
  std::map<Uid, PublishedPod> pods_;
  std::map<Uid, std::string> reasons_;  // of waiting pods
  std::map<Uid, PodRunState> runs_;     // of pods that run, or have restarted or failing containers
  Changes pending_;
  bool publish_scheduled_ = false;
  MonotonicTime last_published_{};
  bool reasons_scheduled_ = false;
  WeakPtrFactory<ClusterModel> weak_{this};
};

}  // namespace tessera::console
