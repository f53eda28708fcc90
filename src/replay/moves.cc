// SPDX-License-Identifier: Apache-2.0
#include "src/replay/moves.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "src/placement/fit.h"

namespace tessera::replay {
namespace {

using placement::Cluster;
using placement::Demand;
using placement::NodeId;
using placement::NodeView;
using placement::PlacedPod;
using placement::PodId;
using placement::ShapeId;

constexpr size_t kMaxNodes = 64;
constexpr size_t kMaxPodsPerNode = 20;

int64_t IdleFor(const NodeView& node, const Demand& demand) {
  int64_t idle = 0;
  for (const placement::GpuState& gpu : node.gpus) {
    if (demand.AllowsModel(gpu.model)) idle += gpu.slack;
  }
  return idle;
}

}  // namespace

// A node, and a copy of it on which removing sets of pods is tried.
struct Mover::Candidate {
  NodeId node = 0;
  int64_t idle = 0;
  std::unique_ptr<Cluster> copy;
  ShapeId wanted_shape = 0;          // its ID in the copy
  std::vector<PodId> ids, copy_ids;  // of the pods that may move, smallest first
  std::vector<PlacedPod> pods;       // the pods of the copy

  // Whether the wanted shape fits without these pods. Restores the copy.
  bool FitsWithout(const std::vector<size_t>& set) {
    for (const size_t i : set) TESSERA_CHECK(copy->Remove(copy_ids[i]).ok());
    const bool fits = Fits(copy->node(0), copy->demand(wanted_shape));
    for (const size_t i : set) copy_ids[i] = *copy->Adopt(pods[i].shape, 0, pods[i].pick);
    return fits;
  }
};

bool Mover::HasEnoughIdle(ShapeId shape) const {
  const Demand& demand = cluster_.demand(shape);
  int64_t idle = 0;
  for (NodeId node = 0; node < cluster_.size(); ++node)
    idle += IdleFor(cluster_.node(node), demand);
  return idle >= demand.milli();
}

std::vector<Mover::Candidate> Mover::Candidates(ShapeId shape) const {
  const Demand& demand = cluster_.demand(shape);
  std::vector<Candidate> candidates;
  for (NodeId node = 0; node < cluster_.size(); ++node) {
    const NodeView view = cluster_.node(node);
    if (!view->present || view->gpu_count < demand.gpus() || cluster_.pods_of(node).empty()) {
      continue;
    }
    candidates.push_back({.node = node, .idle = IdleFor(view, demand)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](auto& a, auto& b) { return a.idle > b.idle; });
  candidates.resize(std::min(candidates.size(), kMaxNodes));
  for (Candidate& candidate : candidates) {
    candidate.copy = std::make_unique<Cluster>();
    Cluster& copy = *candidate.copy;
    // Gives the models the same IDs as in the cluster, so that its demands are valid in the copy.
    for (size_t model = 0; model < cluster_.model_count(); ++model) {
      const auto id = copy.ModelOf(cluster_.NameOf(static_cast<placement::ModelId>(model)));
      TESSERA_CHECK(id.ok() && *id == model);
    }
    TESSERA_CHECK(copy.AddNode(cluster_.spec(candidate.node)).ok());
    candidate.wanted_shape = *copy.Intern(demand);
    std::vector<PodId> pods(cluster_.pods_of(candidate.node).begin(),
                            cluster_.pods_of(candidate.node).end());
    const auto size_of = [&](PodId id) {
      const Demand& size = cluster_.demand(cluster_.Find(id)->shape);
      return std::tuple(size.milli(), size.cpu_milli, id);
    };
    std::sort(pods.begin(), pods.end(), [&](PodId a, PodId b) { return size_of(a) < size_of(b); });
    for (const PodId id : pods) {
      PlacedPod pod = *cluster_.Find(id);
      pod.shape = *copy.Intern(cluster_.demand(pod.shape));
      const PodId copy_id = *copy.Adopt(pod.shape, 0, pod.pick);
      if (candidate.ids.size() == kMaxPodsPerNode) continue;
      candidate.ids.push_back(id);
      candidate.copy_ids.push_back(copy_id);
      candidate.pods.push_back(pod);
    }
  }
  return candidates;
}

std::optional<MoveResult> Mover::MakeRoom(ShapeId shape) {
  std::vector<Candidate> candidates = Candidates(shape);
  for (int size = 1; size <= kMaxMoved; ++size) {
    for (Candidate& candidate : candidates) {
      if (auto result = TrySets(shape, candidate, size)) return result;
    }
  }
  return std::nullopt;
}

// Tries all sets of `size` pods of the node, smallest pods first.
std::optional<MoveResult> Mover::TrySets(ShapeId shape, Candidate& candidate, int size) {
  const size_t count = candidate.ids.size();
  std::vector<size_t> set(static_cast<size_t>(size));
  for (size_t i = 0; i < set.size(); ++i) set[i] = i;
  while (set.back() < count) {
    if (candidate.FitsWithout(set)) {
      MoveResult result;
      for (const size_t i : set) result.moved.push_back(candidate.ids[i]);
      if (Move(shape, candidate.node, &result)) return result;
      for (size_t i = 0; i < set.size(); ++i) candidate.ids[set[i]] = result.moved[i];
    }
    // The next set in lexicographic order.
    size_t at = set.size();
    while (at > 0 && set[at - 1] == count - (set.size() - at) - 1) --at;
    if (at == 0) break;
    ++set[at - 1];
    for (; at < set.size(); ++at) set[at] = set[at - 1] + 1;
  }
  return std::nullopt;
}

// Moves these pods off the node and places a pod of the shape there; if that fails, the pods stay.
bool Mover::Move(ShapeId shape, NodeId node, MoveResult* result) {
  for (const PodId pod : result->moved) {
    result->old_places.push_back(*cluster_.Find(pod));
    TESSERA_CHECK(cluster_.Remove(pod).ok());
  }
  size_t unplaced = result->moved.size();
  if (const auto pick = policy_.PickOn(shape, node)) {
    result->placed = *cluster_.Place(shape, node, *pick);
    // The largest pod is the hardest to place.
    for (; unplaced > 0; --unplaced) {
      const ShapeId moved = result->old_places[unplaced - 1].shape;
      const auto choice = policy_.Choose(moved);
      if (!choice) break;
      const PodId new_id = *cluster_.Place(moved, choice->node, choice->pick);
      on_id_changed_(std::exchange(result->moved[unplaced - 1], new_id), new_id);
    }
    if (unplaced == 0) return true;
  }
  if (result->placed) TESSERA_CHECK(cluster_.Remove(*result->placed).ok());
  for (size_t i = unplaced; i < result->moved.size(); ++i) {
    TESSERA_CHECK(cluster_.Remove(result->moved[i]).ok());
  }
  PutBack(result);
  return false;
}

void Mover::Undo(MoveResult* result) {
  TESSERA_CHECK(cluster_.Remove(*result->placed).ok());
  for (const PodId pod : result->moved) TESSERA_CHECK(cluster_.Remove(pod).ok());
  PutBack(result);
}

void Mover::PutBack(MoveResult* result) {
  result->placed.reset();
  for (size_t i = 0; i < result->moved.size(); ++i) {
    const PlacedPod& old = result->old_places[i];
    const PodId new_id = *cluster_.Place(old.shape, old.node, old.pick);
    on_id_changed_(std::exchange(result->moved[i], new_id), new_id);
  }
}

}  // namespace tessera::replay
