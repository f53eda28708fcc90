// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/cpu_pods.h"

#include <utility>

namespace tessera::ledger {

Status CpuPods::Set(const Uid& uid, const std::string& node, placement::NodeId node_id,
                    int64_t cpu_milli, Bytes memory) {
  CpuPod& pod = pods_[uid];
  const bool same_node = pod.node != nullptr && pod.node->first == node;
  if (same_node && pod.cpu_milli == cpu_milli && pod.memory == memory) return {};
  RemoveFromNode(pod);
  pod.node = &*by_node_.try_emplace(node).first;
  pod.position = static_cast<uint32_t>(pod.node->second.size());
  pod.node->second.push_back(&pod);
  pod.cpu_milli = cpu_milli;
  pod.memory = memory;
  return node_id == placement::kNoNode ? Status::Ok() : AddToCluster(pod, node_id);
}

void CpuPods::Remove(const Uid& uid) {
  const auto known = pods_.find(uid);
  if (known == pods_.end()) return;
  RemoveFromNode(known->second);
  pods_.erase(known);
}

void CpuPods::OnNodeAdded(const std::string& node, placement::NodeId node_id) {
  const auto pods = by_node_.find(node);
  if (pods == by_node_.end()) return;
  for (CpuPod* pod : pods->second) (void)AddToCluster(*pod, node_id);
}

void CpuPods::OnNodeRemoved(const std::string& node) {
  const auto pods = by_node_.find(node);
  if (pods == by_node_.end()) return;
  for (CpuPod* pod : pods->second) pod->placed_id.reset();
}

Status CpuPods::AddToCluster(CpuPod& pod, placement::NodeId node_id) {
  const placement::Demand demand{.cpu_milli = pod.cpu_milli, .memory = pod.memory};
  ASSIGN_OR_RETURN(const placement::ShapeId shape, cluster_.Intern(demand));
  ASSIGN_OR_RETURN(pod.placed_id, cluster_.Adopt(shape, node_id, {}));
  if (!std::exchange(pod.arrived, true)) policy_.OnArrival(shape);
  return {};
}

void CpuPods::RemoveFromNode(CpuPod& pod) {
  if (pod.placed_id) {
    policy_.OnDeparture(cluster_.Find(*pod.placed_id)->shape);
    (void)cluster_.Remove(*pod.placed_id);
    pod.placed_id.reset();
  }
  pod.arrived = false;
  if (pod.node == nullptr) return;
  std::vector<CpuPod*>& pods_on_node = pod.node->second;
  pods_on_node[pod.position] = pods_on_node.back();
  pods_on_node[pod.position]->position = pod.position;
  pods_on_node.pop_back();
  if (pods_on_node.empty()) by_node_.erase(pod.node->first);
  pod.node = nullptr;
}

}  // namespace tessera::ledger
