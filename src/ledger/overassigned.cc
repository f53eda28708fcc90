// SPDX-License-Identifier: Apache-2.0
// Finds GPUs that bound pods hold beyond their capacity.
#include <algorithm>
#include <bit>
#include <tuple>

#include "src/ledger/ledger.h"
#include "src/ledger/node_trial.h"

namespace tessera::ledger {

std::vector<ClusterLedger::Overassignment> ClusterLedger::FindOverassignments() const {
  std::vector<Overassignment> all;
  for (const auto& [name, node] : nodes_) {
    if (node.id == placement::kNoNode) continue;
    const auto gpus = cluster_->node(node.id).gpus;
    if (std::any_of(gpus.begin(), gpus.end(), IsOverassigned)) AddOverassigned(node, &all);
  }
  return all;
}

placement::Pick ClusterLedger::AssignedPick(const PodEntry& pod) const {
  placement::Pick pick = cluster_->Find(*pod.placed_id)->pick;
  for (size_t n = 0; pod.guessed() && n < placement::kMaxGpuDemands; ++n) {
    if (pod.guessed_gpu_demands.test(n)) pick.masks[n] = 0;
  }
  return pick;
}

// Older bindings come first: pods take their GPUs in the order of their bindings, and pods that
// find no room are in excess. Pods that are being deleted and guessed GPUs do not count.
void ClusterLedger::AddOverassigned(const NodeEntry& node, std::vector<Overassignment>* all) const {
  std::vector<const PodEntry*> pods;
  for (const Uid& uid : PodsOn(node.node.name)) {
    const PodEntry& pod = pods_.find(uid)->second;
    if (pod.placed_id && pod.binding_state == BindingState::kBound && !pod.deleting &&
        AssignedPick(pod).all() != 0) {
      pods.push_back(&pod);
    }
  }
  std::sort(pods.begin(), pods.end(), [](const PodEntry* a, const PodEntry* b) {
    return std::tie(a->bound_at, a->request.uid) < std::tie(b->bound_at, b->request.uid);
  });
  NodeTrial trial(*cluster_, node.id);
  std::vector<const PodEntry*> fitting_pods;
  for (const PodEntry* pod : pods) {
    const placement::PlacedPod& placed = *cluster_->Find(*pod->placed_id);
    const placement::Demand& demand = cluster_->demand(placed.shape);
    const placement::Pick assigned = AssignedPick(*pod);
    if (trial.HasRoom(demand, assigned)) {
      trial.Add(demand, assigned);
      fitting_pods.push_back(pod);
      continue;
    }
    const uint64_t wanted = assigned.all();
    const auto same_gpu = [&](const PodEntry* other) {
      return (AssignedPick(*other).all() & wanted) != 0;
    };
    const auto older = std::find_if(fitting_pods.begin(), fitting_pods.end(), same_gpu);
    // The pod alone exceeds the GPU, so an eviction does not help.
    if (older == fitting_pods.end()) continue;
    const uint64_t shared = AssignedPick(**older).all() & wanted;
    const size_t position = static_cast<size_t>(std::countr_zero(shared));
    all->push_back({.node = node.node.name,
                    .gpu = cluster_->uuid(node.id, position),
                    .excess = pod,
                    .older = *older});
  }
}

}  // namespace tessera::ledger
