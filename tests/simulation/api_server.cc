// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/api_server.h"

#include <utility>

#include "src/ledger/testing/objects.h"

namespace tessera::simulation {

using namespace std::chrono_literals;

const kube::PodObject* ApiServer::Find(const std::string& uid) const {
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
  log_.push_back({.pod = std::make_shared<const kube::PodObject>(pod)});
  pods_[pod.meta.name] = std::move(pod);
}

void ApiServer::Remove(const kube::PodObject& pod) {
  log_.push_back({.gone = true, .pod = std::make_shared<const kube::PodObject>(pod)});
  pods_.erase(std::string(pod.meta.name));
}

void ApiServer::Call(const Life& life, std::function<Status()> effect, Done done) {
  const Status away(Code::kUnavailable, "the API server did not answer");
  if (down_ || (!calm_ && world_.Chance(3))) {  // lost on its way there
    return world_.After(world_.Between(10ms, 3s), life, [done, away] { done(away); });
  }
  const bool answer_lost = !calm_ && world_.Chance(3);
  // A request is not dropped with whoever sent it. It takes effect soon or never: the API server
  // gives up on a request whose client is gone.
  world_.runner().PostDelayed(
      calm_ || world_.Chance(90) ? world_.Between(1ms, 30ms) : world_.Between(30ms, 3s),
      [this, weak = std::weak_ptr(life), effect = std::move(effect), done = std::move(done),
       answer_lost, away] {
        const Status status = down_ ? away : effect();
        if (const Life alive = weak.lock()) {
          world_.After(world_.Between(1ms, answer_lost ? Duration(4s) : Duration(20ms)), alive,
                       [done, status = answer_lost ? away : status] { done(status); });
        }
      });
}

Status ApiServer::Bind(const kube::PodBinding& binding) {
  const auto known = pods_.find(binding.pod);
  if (known == pods_.end()) return Error(Code::kNotFound, "pod {} is gone", binding.pod);
  const kube::PodObject& pod = known->second;
  if (pod.meta.uid != binding.uid || !pod.node_name.empty() || pod.meta.deleting) {
    return Error(Code::kAborted, "pod {} is another one, bound or on its way out", binding.pod);
  }
  world_.Note(fmt::format("bound {} to {}{}", pod.meta.uid, binding.node,
                          binding.annotations.empty() ? ", past the scheduler" : ""));
  kube::PodObject bound = ledger::testing::BoundPod(pod, binding.node, binding.annotations);
  bound.nominated_node.clear();
  bound.scheduled = std::chrono::floor<std::chrono::seconds>(world_.clock().WallNow());
  Put(std::move(bound));
  return {};
}

Status ApiServer::Annotate(const std::string& uid, const kube::StringMap& annotations) {
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

const kube::PodObject* ApiServer::Feed::FindPod(const std::string& name) const {
  const auto found = pods_.find(name);
  return found == pods_.end() ? nullptr : &found->second;
}

void ApiServer::Feed::Plan() {
  const bool late = !server_.calm_ && world_.Chance(2);
  world_.After(late ? world_.Between(1s, 20s) : world_.Between(5ms, 200ms), life_, [this] {
    Deliver();
    Plan();
  });
}

void ApiServer::Feed::Deliver() {
  if (server_.down_) return;
  const Life alive = life_;
  if (!synced_ || (!server_.calm_ && heard_ < server_.log_.size() && world_.Chance(2))) {
    List();  // the first one, or the watch was lost
    if (alive.use_count() == 1) return;
    if (!std::exchange(synced_, true)) listener_.OnSynced();
    return;
  }
  const size_t until = server_.calm_
                           ? server_.log_.size()
                           : std::min(server_.log_.size(), heard_ + 1 + world_.random().Below(8));
  while (heard_ < until) {
    Take(heard_++);
    if (alive.use_count() == 1) return;
  }
}

void ApiServer::Feed::TakePod(const kube::PodObject& pod) {
  if (!node_.empty() && pod.node_name != node_) return;
  const auto known = pods_.find(pod.meta.name);
  if (known != pods_.end() && known->second.meta.uid != pod.meta.uid) {
    const kube::PodObject last = known->second;
    pods_.erase(known);
    listener_.OnPodGone(last);
  }
  const auto [at, is_new] = pods_.try_emplace(pod.meta.name);
  if (!is_new && at->second.meta.resource_version == pod.meta.resource_version) return;
  at->second = pod;
  listener_.OnPod(pod);
}

void ApiServer::Feed::Take(size_t number) {
  const Event event = server_.log_[number];
  if (event.pod && !event.gone) return TakePod(*event.pod);
  if (event.pod) {
    const auto known = pods_.find(event.pod->meta.name);
    if (known == pods_.end() || known->second.meta.uid != event.pod->meta.uid) return;
    pods_.erase(known);
    return listener_.OnPodGone(*event.pod);
  }
  if (!event.gone) {
    nodes_[event.node->meta.name] = *event.node;
    return listener_.OnNode(*event.node);
  }
  if (nodes_.erase(event.node->meta.name) > 0) listener_.OnNodeGone(*event.node);
}

void ApiServer::Feed::List() {
  heard_ = server_.log_.size();
  const auto before_nodes = nodes_;
  for (const auto& [name, node] : before_nodes) {
    if (!server_.nodes_.contains(name)) {
      nodes_.erase(name);
      listener_.OnNodeGone(node);
    }
  }
  for (const auto& [name, node] : server_.nodes_) {
    const auto known = nodes_.find(name);
    if (known != nodes_.end() &&
        known->second.meta.resource_version == node.meta.resource_version) {
      continue;
    }
    nodes_[name] = node;
    listener_.OnNode(node);
  }
  const auto before_pods = pods_;
  for (const auto& [name, pod] : before_pods) {
    const auto now = server_.pods_.find(name);
    if (now == server_.pods_.end() || now->second.meta.uid != pod.meta.uid) {
      pods_.erase(name);
      listener_.OnPodGone(pod);
    }
  }
  for (const auto& [name, pod] : std::map(server_.pods_)) TakePod(pod);
}

}  // namespace tessera::simulation
