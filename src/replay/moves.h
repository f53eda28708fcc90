// SPDX-License-Identifier: Apache-2.0
// Room for a pod that fits nowhere, made by moving running pods to where they fit now: the fewest,
// all from one node. It looks at sets of up to kMostMoved of the smallest pods of each node, and
// nodes with the most idle GPU first, so it may miss a way.
//
// Threads: as the cluster. Private to this room.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::replay {

struct RoomMade {
  std::optional<placement::PodId> placed;  // the pod that got the room
  std::vector<placement::PodId> moved;     // with the ids that they have now
  std::vector<placement::Pod> old_places;  // of those
};

class Mover {
 public:
  static constexpr int kMostMoved = 3;

  // `renamed` is called for each pod that has another id than before: those that were moved, and
  // those that were moved and put back.
  using Renamed = std::function<void(placement::PodId before, placement::PodId now)>;
  Mover(placement::Cluster& cluster, placement::Policy& policy, Renamed renamed)
      : cluster_(cluster), policy_(policy), renamed_(std::move(renamed)) {}

  // Whether the GPUs that the demand may use have enough idle thousandths in all.
  bool EnoughIdle(placement::ShapeId shape) const;

  // Moves pods and places one of this shape. Nothing, and all pods are where they were, where no
  // way was found. Where pods go, the policy decides; that may be another GPU of the same node.
  std::optional<RoomMade> MakeRoom(placement::ShapeId shape);
  // Takes the pod away again and puts the others back.
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
