// SPDX-License-Identifier: Apache-2.0
// Makes room for a pod that fits on no node: moves as few running pods as possible, all from the
// same node, to other GPUs. The search tries only sets of up to kMaxMoved of a node's smallest
// pods, and begins with the nodes that have the most idle GPU. So it may miss a solution.
//
// Threads: call on the cluster's thread. Included only in src/replay.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::replay {

struct MoveResult {
  std::optional<placement::PodId> placed;        // the pod for which room was made
  std::vector<placement::PodId> moved;           // the moved pods, by their new IDs
  std::vector<placement::PlacedPod> old_places;  // of the moved pods
};

class Mover {
 public:
  static constexpr int kMaxMoved = 3;

  // `on_id_changed` is called for each pod whose ID has changed: pods that were moved, and pods
  // that were moved and put back.
  using OnIdChanged = std::function<void(placement::PodId before, placement::PodId now)>;
  Mover(placement::Cluster& cluster, placement::Policy& policy, OnIdChanged on_id_changed)
      : cluster_(cluster), policy_(policy), on_id_changed_(std::move(on_id_changed)) {}

  // Whether the GPUs that the demand may use have enough idle thousandths in total.
  bool HasEnoughIdle(placement::ShapeId shape) const;

  // Moves pods and places a pod of this shape. Returns nullopt, with all pods on their old GPUs, if
  // it finds no solution. The policy chooses the new GPUs of moved pods, possibly on the same node.
  std::optional<MoveResult> MakeRoom(placement::ShapeId shape);
  // Removes the placed pod and puts the moved pods back.
  void Undo(MoveResult* result);

 private:
  struct Candidate;

  std::vector<Candidate> Candidates(placement::ShapeId shape) const;
  std::optional<MoveResult> TrySets(placement::ShapeId shape, Candidate& candidate, int size);
  bool Move(placement::ShapeId shape, placement::NodeId node, MoveResult* result);
  void PutBack(MoveResult* result);

  placement::Cluster& cluster_;
  placement::Policy& policy_;
  OnIdChanged on_id_changed_;
};

}  // namespace tessera::replay
