// SPDX-License-Identifier: Apache-2.0
// Makes room for a pod that fits on no node, by moving as few running pods as possible, all of one
// node, to other GPUs. It tries only sets of up to kMaxMoved of the smallest pods of a node, and
// begins with the nodes that have the most idle GPU. So it may miss a solution.
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

struct RoomMade {
  std::optional<placement::PodId> placed;        // the pod that got the room
  std::vector<placement::PodId> moved;           // with their new ids
  std::vector<placement::PlacedPod> old_places;  // of the moved pods
};

class Mover {
 public:
  static constexpr int kMaxMoved = 3;

  // `renamed` is called for each pod whose id has changed: pods that were moved, and pods that were
  // moved and put back.
  using Renamed = std::function<void(placement::PodId before, placement::PodId now)>;
  Mover(placement::Cluster& cluster, placement::Policy& policy, Renamed renamed)
      : cluster_(cluster), policy_(policy), renamed_(std::move(renamed)) {}

  // Whether the GPUs that the demand may use have enough idle thousandths in total.
  bool HasEnoughIdle(placement::ShapeId shape) const;

  // Moves pods and places a pod of this shape. Returns nullopt, with all pods on their old GPUs, if
  // it finds no solution. The policy chooses the new GPUs of moved pods, possibly on the same node.
  std::optional<RoomMade> MakeRoom(placement::ShapeId shape);
  // Removes the placed pod and puts the moved pods back.
  void Undo(RoomMade* made);

 private:
  struct Candidate;

  std::vector<Candidate> Candidates(placement::ShapeId shape) const;
  std::optional<RoomMade> TrySets(placement::ShapeId shape, Candidate& candidate, int size);
  bool Move(placement::ShapeId shape, placement::NodeId node, RoomMade* made);
  void PutBack(RoomMade* made);

  placement::Cluster& cluster_;
  placement::Policy& policy_;
  Renamed renamed_;
};

}  // namespace tessera::replay
