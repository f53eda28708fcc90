// SPDX-License-Identifier: Apache-2.0
// Inside the room: pods that ask for no GPU. They take CPU and memory of nodes whose GPUs others
// want, which policies price; nothing else of them matters, and a cluster has many times more of
// them than of pods with GPUs. Kept are about 200 bytes for each.
//
// Pods on nodes without GPUs are known as well, because such a node may get GPUs.
//
// Threads: one. Cost: a pod or node that changes touches one node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/kube/uid_digest.h"
#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::ledger {

class PlainPods {
 public:
  // `cluster` and `policy`, which learns of the pods on nodes with GPUs, outlive it.
  PlainPods(placement::Cluster& cluster, placement::Policy& policy)
      : cluster_(cluster), policy_(policy) {}

  // A bound pod, and what it takes. `id` is that of its node, kNoNode where that has no GPUs.
  // INVALID_ARGUMENT where the amounts make no sense; it takes nothing then.
  Status Set(const kube::UidDigest& digest, const std::string& node, placement::NodeId id,
             int64_t cpu_milli, Bytes memory);
  // Nothing happens for a UID that is not here.
  void Remove(const kube::UidDigest& digest);

  // The node has GPUs now: its pods count there.
  void OnNodeAdded(const std::string& node, placement::NodeId id);
  // Its pods have been taken off with it.
  void OnNodeRemoved(const std::string& node);

  size_t size() const { return pods_.size(); }

 private:
  struct Plain;
  using ByNode = std::unordered_map<std::string, std::vector<Plain*>>;
  struct Plain {
    ByNode::value_type* node = nullptr;  // with all pods there
    uint32_t position = 0;               // among them
    bool arrived = false;                // the policy knows of it
    int64_t cpu_milli = 0;
    Bytes memory;
    std::optional<placement::PodId> place;
  };
  Status Place(Plain& pod, placement::NodeId id);
  void Leave(Plain& pod);

  placement::Cluster& cluster_;
  placement::Policy& policy_;
  std::unordered_map<kube::UidDigest, Plain, kube::UidDigest::Hash> pods_;
  ByNode by_node_;
};

}  // namespace tessera::ledger
