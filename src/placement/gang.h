// SPDX-License-Identifier: Apache-2.0
// Places all pods of a gang, or none; then the cluster stays unchanged. Does not detect which pods
// form a gang, and does not check quotas (quota.h).
//
// Members are placed one after the other, hardest first. For each of them the policy chooses a node
// and GPUs, with the earlier members in place. PlaceGang does not try other orders, so it can
// reject a gang that would fit in another order.
//
// Threads: as Cluster. Cost: one decision of the policy for each pod; with kOneNode at most one
// attempt for each node whose free resources cover the gang's sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::placement {

// How the pods of a gang are distributed over nodes.
enum class GangLayout : uint8_t {
  kAnywhere,
  kOneNode,  // all on one node, or on few nodes if no node has room
  kOnePool,  // all in one pool of nodes
  kApart,    // each on a node of its own
};

struct GangMember {
  ShapeId shape = 0;
  int count = 1;
};

struct Gang {
  std::vector<GangMember> members;
  GangLayout layout = GangLayout::kAnywhere;
  bool strict = false;  // reject the gang rather than place it in another layout
};
// Maximum number of pods in a gang. It exceeds the size of real jobs and bounds the work for a gang
// of empty pods.
inline constexpr int kMaxGangPods = 16384;

struct GangPod {
  size_t member = 0;
  PodId pod = 0;
  Placement placement;
};

struct GangResult {
  bool placed = false;
  // If placed: its pods, which the cluster now holds, in the order of the members.
  std::vector<GangPod> pods;
  // If not placed, these describe the attempt that placed the most pods: the member that did not
  // fit, the number of placed pods, and the reason: "pod 3 of 8: 0/12 nodes have room: …".
  size_t failed_member = 0;
  int placed_count = 0;
  std::string reason;
};

// Places the gang by the policy's Choose, Scores and PickOn; the caller reports the arrivals
// (ArrivalsOf). After a rejection nodes, GPUs and pods are exactly as before; only the version has
// increased. REQUIRES: the policy is of this cluster.
GangResult PlaceGang(Cluster& cluster, Policy& policy, const Gang& gang);

// The shapes to report to a policy that learns (Policy::OnArrival, and OnDeparture once the whole
// gang has left). Normally there is one shape for each pod. A gang of whole GPUs on one node is
// reported as one pod with the sum of all demands, because it needs room for the whole sum.
// REQUIRES: the gang has at most kMaxGangPods pods.
std::vector<ShapeId> ArrivalsOf(Cluster& cluster, const Gang& gang);

}  // namespace tessera::placement
