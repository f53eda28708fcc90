// SPDX-License-Identifier: Apache-2.0
// The API server as far as GPUs are concerned: Nodes and Pods, bindings, evictions, annotations,
// the Lease, the EndpointSlice, and news of all of it, late, in clumps and with lost watches.
// Schedulers speak to it as over HTTP (connection.h); kubelets, agents and users call it. A
// stand-in because the real one cannot be run under virtual time, nor be made to lose exactly one
// answer.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/kube/binding.h"
#include "src/kube/objects.h"
#include "src/net/http.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

class ApiServer {
 public:
  explicit ApiServer(World& world) : world_(world) {}

  // --- The objects, as they are now.
  const std::map<std::string, kube::NodeObject>& nodes() const { return nodes_; }
  const std::map<std::string, kube::PodObject>& pods() const { return pods_; }  // by name
  const kube::PodObject* Find(const Uid& uid) const;
  // Grows with every change.
  size_t version() const { return log_.size(); }
  // Grows with every change of what pods have: bindings and annotations.
  size_t assignments() const { return assignments_; }
  void Put(kube::NodeObject node);
  void Remove(const kube::NodeObject& node);
  void Put(kube::PodObject pod);
  void Remove(const kube::PodObject& pod);

  // --- Requests. Each takes a while; now and then it is lost, or its answer is. `done` is dropped
  // with `life`.
  using Done = std::function<void(const Status&)>;
  void Call(const Life& life, std::function<Status()> effect, Done done);
  Status Bind(const kube::PodBinding& binding);
  Status Annotate(const Uid& uid, const kube::StringMap& annotations);

  // --- Requests over HTTP, and their faults. `may_write`: whether their sender still leads. What
  // takes effect although it does not is remembered as stale. `on_its_way`: for how long.
  net::Response Handle(const net::Request& request, bool may_write, Duration on_its_way);
  bool Loses() { return !calm_ && world_.Chance(3); }
  bool calm() const { return calm_; }
  Duration TimeOfRequest();
  Duration TimeOfNews();
  // Pods that were bound by a replica that did not lead any more.
  const std::set<Uid>& stale() const { return stale_; }
  // Those whose binding was on its way for so long that the cluster was another one when it came.
  const std::set<Uid>& late() const { return late_; }
  // Where the EndpointSlice leads to; "" where it leads nowhere.
  std::string Leader() const;

  // --- Watches over HTTP.
  enum class Kind { kNodes, kPods, kConfigMaps, kBudgets };
  static Kind KindOf(const net::Request& request);
  std::string FramesOfAll(Kind kind) const;
  std::string BookmarkFrame(Kind kind, bool ends_initial) const;
  // Of the change that made `version` + 1; "" where it was of another kind.
  const std::string& FrameOf(Kind kind, size_t version);
  void SetQuota(const std::string& text);
  void Put(kube::PodDisruptionBudgetObject budget) { budgets_.push_back(std::move(budget)); }

  void SetDown(bool down) { down_ = down; }
  bool down() const { return down_; }
  // Nothing is lost any more.
  void SetCalm() { calm_ = true; }

  // --- News.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnPod(const kube::PodObject& pod) = 0;
    virtual void OnPodGone(const kube::PodObject& last) = 0;
    // The list is whole for the first time.
    virtual void OnSynced() = 0;
  };
  using PodPtr = std::shared_ptr<const kube::PodObject>;
  // A copy of the pods of one node that follows, as an informer has it.
  class Feed {
    friend class ApiServer;

   public:
    Feed(World& world, ApiServer& server, Listener& listener, std::string node);

    bool synced() const { return synced_; }

   private:
    void Plan();
    void Deliver();
    void List();
    void Take(const PodPtr& pod);
    void Drop(const PodPtr& last);

    World& world_;
    ApiServer& server_;
    Listener& listener_;
    const std::string node_;
    bool synced_ = false;
    size_t heard_ = 0;
    std::map<std::string, PodPtr> pods_;
    const Life life_ = Born();
  };

 private:
  struct Event {
    bool gone = false;
    std::shared_ptr<const kube::NodeObject> node;
    PodPtr pod;
    std::string frame;  // once it was asked for
  };
  // A feed that has all news of its node.
  struct Idle {
    std::weak_ptr<const bool> life;
    Feed* feed;
  };
  void WakeFeeds(const std::string& node);
  net::Response HandlePod(const net::Request& request, const std::vector<std::string>& path,
                          bool may_write, Duration on_its_way);
  net::Response HandleObject(const net::Request& request);
  net::Response Evict(const std::string& name, const Uid& uid);

  World& world_;
  std::map<std::string, kube::NodeObject> nodes_;
  std::map<std::string, kube::PodObject> pods_;
  std::map<std::string, PodPtr> shown_;          // the same pods, as they go into news
  std::multimap<std::string, Idle> idle_feeds_;  // by node
  std::vector<Event> log_;
  std::map<std::string, Json> objects_;  // by path: the Lease and the EndpointSlice
  size_t object_version_ = 0;
  size_t assignments_ = 0;
  kube::ConfigMapObject quota_;
  std::vector<kube::PodDisruptionBudgetObject> budgets_;
  std::set<Uid> stale_, late_;
  bool down_ = false;
  bool calm_ = false;
};

}  // namespace tessera::simulation
