// SPDX-License-Identifier: Apache-2.0
// A fake API server with Nodes and Pods, bindings, evictions, annotations, the Lease, the
// EndpointSlice, and watch events that arrive late, in batches, and are lost with broken watches.
// Schedulers use its HTTP interface (connection.h); kubelets, agents and users call it directly. It
// is a fake, because the real one cannot run under virtual time or lose exactly one response.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/uid.h"
#include "src/kube/binding.h"
#include "src/kube/objects.h"
#include "src/net/http.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

class ApiServer {
 public:
  explicit ApiServer(World& world) : world_(world) {}

  // --- Current objects.
  const std::map<std::string, kube::NodeObject>& nodes() const { return nodes_; }
  const std::map<std::string, kube::PodObject>& pods() const { return pods_; }  // by name
  const kube::PodObject* Find(const Uid& uid) const;
  // Number of changes so far.
  size_t version() const { return log_.size(); }
  // Number of changes of bindings and annotations so far.
  size_t assignments() const { return assignments_; }
  void Put(kube::NodeObject node);
  void Remove(const kube::NodeObject& node);
  void Put(kube::PodObject pod);
  void Remove(const kube::PodObject& pod);

  // --- Requests. Each takes a while; sometimes the request or its response is lost. `done` is not
  // called after the caller's `life` has ended.
  using Done = std::function<void(const Status&)>;
  void Call(const Life& life, std::function<Status()> effect, Done done);
  Status Bind(const kube::PodBinding& binding);
  Status Annotate(const Uid& uid, const StringMap& annotations);

  // --- Requests over HTTP, and their faults. `may_write`: whether the sender still leads;
  // otherwise its binding is recorded as stale. `delay`: how long the request took.
  net::Response Handle(const net::Request& request, bool may_write, Duration delay);
  // Decides at random whether a request, a response or a watch is lost.
  bool LosesNext() { return !calm_ && world_.Chance(3); }
  bool calm() const { return calm_; }
  Duration RequestDelay();
  Duration WatchDelay();
  // Pods that were bound by a former leader.
  const std::set<Uid>& stale_bindings() const { return stale_bindings_; }
  // Pods whose binding was delayed for so long that the cluster may have changed.
  const std::set<Uid>& late_bindings() const { return late_bindings_; }
  // The address in the EndpointSlice; "" if it has none.
  std::string LeaderAddress() const;

  // --- Watches over HTTP.
  enum class Kind { kNodes, kPods, kConfigMaps, kBudgets };
  static Kind KindOf(const net::Request& request);
  std::string FramesOfAll(Kind kind) const;
  std::string BookmarkFrame(Kind kind, bool ends_initial) const;
  // The frame of the change to `version` + 1; "" if it is of another kind.
  const std::string& FrameOf(Kind kind, size_t version);
  void SetQuota(const std::string& text);
  void Put(kube::PodDisruptionBudgetObject budget) { budgets_.push_back(std::move(budget)); }

  void SetDown(bool down) { down_ = down; }
  bool down() const { return down_; }
  // Ends all faults.
  void SetCalm() { calm_ = true; }

  // --- Watches of pods without HTTP.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnPod(const kube::PodObject& pod) = 0;
    virtual void OnPodGone(const kube::PodObject& last) = 0;
    // The listener has received the first list.
    virtual void OnSynced() = 0;
  };
  using PodPtr = std::shared_ptr<const kube::PodObject>;
  // A copy of the pods of one node that follows the server, like an informer.
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
    size_t received_ = 0;
    std::map<std::string, PodPtr> pods_;
    const Life life_ = Born();
  };

 private:
  struct Event {
    bool gone = false;
    std::shared_ptr<const kube::NodeObject> node;
    PodPtr pod;
    std::string frame;  // empty until it is requested
  };
  // A feed that has received all events of its node.
  struct IdleFeed {
    std::weak_ptr<const bool> life;
    Feed* feed;
  };
  void WakeFeeds(const std::string& node);
  net::Response HandlePod(const net::Request& request, const std::vector<std::string>& path,
                          bool may_write, Duration delay);
  net::Response HandleObject(const net::Request& request);
  net::Response Evict(const std::string& name, const Uid& uid);

  World& world_;
  std::map<std::string, kube::NodeObject> nodes_;
  std::map<std::string, kube::PodObject> pods_;
  std::map<std::string, PodPtr> shown_;              // shared copies of pods_ for events
  std::multimap<std::string, IdleFeed> idle_feeds_;  // by node
  std::vector<Event> log_;
  std::map<std::string, Json> objects_;  // Lease and EndpointSlice, by path
  size_t object_version_ = 0;
  size_t assignments_ = 0;
  kube::ConfigMapObject quota_;
  std::vector<kube::PodDisruptionBudgetObject> budgets_;
  std::set<Uid> stale_bindings_, late_bindings_;
  bool down_ = false;
  bool calm_ = false;
};

}  // namespace tessera::simulation
