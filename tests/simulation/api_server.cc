// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/api_server.h"

#include <cstdint>
#include <utility>

#include "src/ledger/testing/objects.h"

namespace tessera::simulation {

using namespace std::chrono_literals;

const kube::PodObject* ApiServer::Find(const Uid& uid) const {
  for (const auto& [name, pod] : pods_) {
    if (pod.meta.uid == uid) return &pod;
  }
  return nullptr;
}

void ApiServer::Put(kube::NodeObject node) {
  node.meta.resource_version = std::to_string(log_.size() + 1);
  log_.push_back({.node = std::make_shared<const kube::NodeObject>(node)});
  nodes_[node.meta.name] = std::move(node);
}

void ApiServer::Remove(const kube::NodeObject& node) {
  log_.push_back({.gone = true, .node = std::make_shared<const kube::NodeObject>(node)});
  nodes_.erase(node.meta.name);
}

void ApiServer::Put(kube::PodObject pod) {
  pod.meta.resource_version = std::to_string(log_.size() + 1);
  const PodPtr& shown = shown_[pod.meta.name] = std::make_shared<const kube::PodObject>(pod);
  log_.push_back({.pod = shown});
  WakeFeeds(pod.node_name);
  const auto before = pods_.find(pod.meta.name);
  assignments_ += before == pods_.end() || before->second.node_name != pod.node_name ||
                  before->second.meta.annotations != pod.meta.annotations;
  pods_[pod.meta.name] = std::move(pod);
}

void ApiServer::Remove(const kube::PodObject& pod) {
  log_.push_back({.gone = true, .pod = std::make_shared<const kube::PodObject>(pod)});
  WakeFeeds(pod.node_name);
  const std::string name = pod.meta.name;  // copied, because `pod` may be the one in the map
  shown_.erase(name);
  pods_.erase(name);
}

void ApiServer::Call(const Life& life, std::function<Status()> effect, Done done) {
  const Status no_response(Code::kUnavailable, "no response from the API server");
  if (down_ || (!calm_ && world_.Chance(3))) {  // the request does not arrive
    return world_.After(world_.Between(10ms, 3s), life, [done, no_response] { done(no_response); });
  }
  const bool response_lost = !calm_ && world_.Chance(3);
  // A request outlives its sender. It takes effect soon or never, because the API server cancels a
  // request whose client has disconnected.
  world_.runner().PostDelayed(
      calm_ || world_.Chance(90) ? world_.Between(1ms, 30ms) : world_.Between(30ms, 3s),
      [this, weak = std::weak_ptr(life), effect = std::move(effect), done = std::move(done),
       response_lost, no_response] {
        const Status status = down_ ? no_response : effect();
        if (const Life alive = weak.lock()) {
          world_.After(world_.Between(1ms, response_lost ? Duration(4s) : Duration(20ms)), alive,
                       [done, status = response_lost ? no_response : status] { done(status); });
        }
      });
}

Status ApiServer::Bind(const kube::PodBinding& binding) {
  const auto known = pods_.find(binding.pod);
  if (known == pods_.end()) return Error(Code::kNotFound, "pod {} is gone", binding.pod);
  const kube::PodObject& pod = known->second;
  if (pod.meta.uid != binding.uid || !pod.node_name.empty() || pod.meta.deleting) {
    return Error(Code::kAborted, "pod {} was replaced, is bound or is being deleted", binding.pod);
  }
  world_.Note(fmt::format("bound {} to {}{}", pod.meta.uid, binding.node,
                          binding.annotations.empty() ? ", bypassing the scheduler" : ""));
  kube::PodObject bound = ledger::testing::BoundPod(pod, binding.node, binding.annotations);
  bound.nominated_node.clear();
  bound.scheduled_at = std::chrono::floor<std::chrono::seconds>(world_.clock().WallNow());
  Put(std::move(bound));
  return {};
}

Status ApiServer::Annotate(const Uid& uid, const StringMap& annotations) {
  const kube::PodObject* known = Find(uid);
  if (known == nullptr) return Error(Code::kNotFound, "pod {} is gone", uid);
  kube::PodObject pod = *known;
  for (const auto& [key, value] : annotations) pod.meta.annotations[key] = value;
  if (pod.meta.annotations != known->meta.annotations) Put(std::move(pod));
  return {};
}

ApiServer::Feed::Feed(World& world, ApiServer& server, Listener& listener, std::string node)
    : world_(world), server_(server), listener_(listener), node_(std::move(node)) {
  Plan();
}

void ApiServer::Feed::Plan() {
  world_.After(server_.WatchDelay(), life_, [this, weak = std::weak_ptr(life_)] {
    Deliver();
    if (weak.expired()) return;
    if (server_.down_ || received_ < server_.log_.size()) return Plan();
    server_.idle_feeds_.emplace(node_, IdleFeed{life_, this});
  });
}

void ApiServer::WakeFeeds(const std::string& node) {
  const auto [begin, end] = idle_feeds_.equal_range(node);
  for (auto idle = begin; idle != end; ++idle) {
    if (!idle->second.life.expired()) idle->second.feed->Plan();
  }
  idle_feeds_.erase(begin, end);
}

void ApiServer::Feed::Deliver() {
  if (server_.down_) return;
  const Life alive = life_;
  if (!synced_ || (!server_.calm_ && received_ < server_.log_.size() && world_.Chance(2))) {
    List();  // first list, or the watch was lost
    if (alive.use_count() == 1) return;
    if (!std::exchange(synced_, true)) listener_.OnSynced();
    return;
  }
  for (size_t most = server_.calm_ ? SIZE_MAX : 1 + world_.random().Below(8);
       most > 0 && received_ < server_.log_.size(); ++received_) {
    const PodPtr pod = server_.log_[received_].pod;
    if (pod == nullptr || pod->node_name != node_) continue;
    --most;
    server_.log_[received_].gone ? Drop(pod) : Take(pod);
    if (alive.use_count() == 1) return;
  }
}

void ApiServer::Feed::Take(const PodPtr& pod) {
  if (pod->node_name != node_) return;
  const auto known = pods_.find(pod->meta.name);
  if (known != pods_.end() && known->second->meta.uid != pod->meta.uid) {
    const PodPtr last = known->second;
    pods_.erase(known);
    listener_.OnPodGone(*last);
  }
  PodPtr& here = pods_[pod->meta.name];
  if (here != nullptr && here->meta.resource_version == pod->meta.resource_version) return;
  here = pod;
  listener_.OnPod(*pod);
}

void ApiServer::Feed::Drop(const PodPtr& last) {
  const auto known = pods_.find(last->meta.name);
  if (known == pods_.end() || known->second->meta.uid != last->meta.uid) return;
  pods_.erase(known);
  listener_.OnPodGone(*last);
}

void ApiServer::Feed::List() {
  received_ = server_.log_.size();
  const auto before = pods_;
  for (const auto& [name, pod] : before) {
    const auto now = server_.pods_.find(name);
    if (now == server_.pods_.end() || now->second.meta.uid != pod->meta.uid) {
      pods_.erase(name);
      listener_.OnPodGone(*pod);
    }
  }
  for (const auto& [name, pod] : std::map(server_.shown_)) Take(pod);
}

}  // namespace tessera::simulation
