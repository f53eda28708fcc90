// SPDX-License-Identifier: Apache-2.0
// Pods that start together or not at all: places all of a gang on a cluster, or leaves the cluster
// as it was. Not for learning which pods are a gang, nor for quotas (quota.h).
//
// Members are placed one after the other, hardest first, each where the policy puts it beside those
// before it. That is no search: a gang can be refused that another order would have placed.
//
// Threads: as Cluster. Cost: as so many decisions of the policy; with kOneNode at most one attempt
// for each node that has room for all of it in sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::placement {

// How the pods of a gang lie to each other.
enum class GangLayout : uint8_t {
  kAnywhere,
  kOneNode,  // all on one node, or else on few
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
  bool strict = false;  // refused where the layout cannot be had, instead of placed otherwise
};
// More pods than one job starts; bounds what a gang of empty pods can make us do.
inline constexpr int kMaxGangPods = 16384;

struct GangPod {
  size_t member = 0;
  PodId pod = 0;
  Decision decision;
};

struct GangResult {
  bool placed = false;
  // Where it is placed: its pods, which the cluster now holds, in the order of the members.
  std::vector<GangPod> pods;
  // Where it is not: the member that found no place, how many pods had found one by then in the
  // attempt that came furthest, and why: "pod 3 of 8: 0/12 nodes have room: …".
  size_t failed_member = 0;
  int had_place = 0;
  std::string why;
};

// Places the gang with the policy's decisions, of which it asks for no more than Choose, Scores and
// PickOn: arrivals are the caller's to tell (ArrivalsOf). After a refusal nodes, GPUs and pods are
// exactly as they were; only the version has moved on. REQUIRES: the policy is of this cluster.
GangResult PlaceGang(Cluster& cluster, Policy& policy, const Gang& gang);

// As what a gang is to be told to a policy that learns (Policy::Arrived, and Departed when all of
// it has left): as its pods; or, where whole GPUs are to be on one node, as one pod that asks for
// what they ask for together, as nothing smaller than its place serves them. REQUIRES: at most
// kMaxGangPods.
std::vector<ShapeId> ArrivalsOf(Cluster& cluster, const Gang& gang);

}  // namespace tessera::placement
