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
  ShapeId wanted = 0;               // the wanted shape in the copy
  std::vector<PodId> real, copied;  // the pods that may move, smallest first
  std::vector<PlacedPod> pods;      // the pods of the copy

  // Whether the wanted shape fits without these pods. Restores the copy.
  bool FitsWithout(const std::vector<size_t>& set) {
    for (const size_t i : set) TESSERA_CHECK(copy->Remove(copied[i]).ok());
    const bool fits = Fits(copy->node(0), copy->demand(wanted));
    for (const size_t i : set) copied[i] = *copy->Adopt(pods[i].shape, 0, pods[i].pick);
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
    candidate.wanted = *copy.Intern(demand);
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
      const PodId copied = *copy.Adopt(pod.shape, 0, pod.pick);
      if (candidate.real.size() == kMaxPodsPerNode) continue;
      candidate.real.push_back(id);
      candidate.copied.push_back(copied);
      candidate.pods.push_back(pod);
    }
  }
  return candidates;
}

std::optional<RoomMade> Mover::MakeRoom(ShapeId shape) {
  std::vector<Candidate> candidates = Candidates(shape);
  for (int size = 1; size <= kMaxMoved; ++size) {
    for (Candidate& candidate : candidates) {
      if (auto made = TrySets(shape, candidate, size)) return made;
    }
  }
  return std::nullopt;
}

// Tries all sets of `size` pods of the node, smallest pods first.
std::optional<RoomMade> Mover::TrySets(ShapeId shape, Candidate& candidate, int size) {
  const size_t count = candidate.real.size();
  std::vector<size_t> set(static_cast<size_t>(size));
  for (size_t i = 0; i < set.size(); ++i) set[i] = i;
  while (set.back() < count) {
    if (candidate.FitsWithout(set)) {
      RoomMade made;
      for (const size_t i : set) made.moved.push_back(candidate.real[i]);
      if (Move(shape, candidate.node, &made)) return made;
      for (size_t i = 0; i < set.size(); ++i) candidate.real[set[i]] = made.moved[i];
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
bool Mover::Move(ShapeId shape, NodeId node, RoomMade* made) {
  for (const PodId pod : made->moved) {
    made->old_places.push_back(*cluster_.Find(pod));
    TESSERA_CHECK(cluster_.Remove(pod).ok());
  }
  size_t left = made->moved.size();
  if (const auto pick = policy_.PickOn(shape, node)) {
    made->placed = *cluster_.Place(shape, node, *pick);
    // The largest pod is the hardest to place.
    for (; left > 0; --left) {
      const ShapeId moved = made->old_places[left - 1].shape;
      const auto where = policy_.Choose(moved);
      if (!where) break;
      const PodId now = *cluster_.Place(moved, where->node, where->pick);
      renamed_(std::exchange(made->moved[left - 1], now), now);
    }
    if (left == 0) return true;
  }
  if (made->placed) TESSERA_CHECK(cluster_.Remove(*made->placed).ok());
  for (size_t i = left; i < made->moved.size(); ++i) {
    TESSERA_CHECK(cluster_.Remove(made->moved[i]).ok());
  }
  PutBack(made);
  return false;
}

void Mover::Undo(RoomMade* made) {
  TESSERA_CHECK(cluster_.Remove(*made->placed).ok());
  for (const PodId pod : made->moved) TESSERA_CHECK(cluster_.Remove(pod).ok());
  PutBack(made);
}

void Mover::PutBack(RoomMade* made) {
  made->placed.reset();
  for (size_t i = 0; i < made->moved.size(); ++i) {
    const PlacedPod& old = made->old_places[i];
    const PodId now = *cluster_.Place(old.shape, old.node, old.pick);
    renamed_(std::exchange(made->moved[i], now), now);
  }
}

}  // namespace tessera::replay
