// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/plain_pods.h"

#include <utility>

namespace tessera::ledger {

Status PlainPods::Set(const kube::UidDigest& digest, const std::string& node, placement::NodeId id,
                      int64_t cpu_milli, Bytes memory) {
  Plain& pod = pods_[digest];
  const bool same_node = pod.node != nullptr && pod.node->first == node;
  if (same_node && pod.cpu_milli == cpu_milli && pod.memory == memory) return {};
  Leave(pod);
  pod.node = &*by_node_.try_emplace(node).first;
  pod.position = static_cast<uint32_t>(pod.node->second.size());
  pod.node->second.push_back(&pod);
  pod.cpu_milli = cpu_milli;
  pod.memory = memory;
  return id == placement::kNoNode ? Status::Ok() : Place(pod, id);
}

void PlainPods::Remove(const kube::UidDigest& digest) {
  const auto known = pods_.find(digest);
  if (known == pods_.end()) return;
  Leave(known->second);
  pods_.erase(known);
}

void PlainPods::OnNodeAdded(const std::string& node, placement::NodeId id) {
  const auto pods = by_node_.find(node);
  if (pods == by_node_.end()) return;
  for (Plain* pod : pods->second) (void)Place(*pod, id);
}

void PlainPods::OnNodeRemoved(const std::string& node) {
  const auto pods = by_node_.find(node);
  if (pods == by_node_.end()) return;
  for (Plain* pod : pods->second) pod->place.reset();
}

Status PlainPods::Place(Plain& pod, placement::NodeId id) {
  const placement::Demand demand{.cpu_milli = pod.cpu_milli, .memory = pod.memory};
  ASSIGN_OR_RETURN(const placement::ShapeId shape, cluster_.Intern(demand));
  ASSIGN_OR_RETURN(pod.place, cluster_.Adopt(shape, id, {}));
  if (!std::exchange(pod.arrived, true)) policy_.Arrived(shape);
  return {};
}

// Takes the pod off its node.
void PlainPods::Leave(Plain& pod) {
  if (pod.place) {
    policy_.Departed(cluster_.Find(*pod.place)->shape);
    (void)cluster_.Remove(*pod.place);
    pod.place.reset();
  }
  pod.arrived = false;
  if (pod.node == nullptr) return;
  std::vector<Plain*>& beside = pod.node->second;
  beside[pod.position] = beside.back();
  beside[pod.position]->position = pod.position;
  beside.pop_back();
  if (beside.empty()) by_node_.erase(pod.node->first);
  pod.node = nullptr;
}

}  // namespace tessera::ledger
