// SPDX-License-Identifier: Apache-2.0
// Counts the CPU and memory that pods without GPUs hold, because policies price CPU and memory.
// Most pods of a cluster are such pods, so each takes only about 200 bytes here.
// Pods on nodes without GPUs are counted as well, because such a node may get GPUs. Included only
// in src/ledger.
//
// Threads: one. Cost: a changed pod or node touches one node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/base/units.h"
#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::ledger {

class CpuPods {
 public:
  // `cluster` and `policy` outlive this object. The policy is notified of pods on nodes with GPUs.
  CpuPods(placement::Cluster& cluster, placement::Policy& policy)
      : cluster_(cluster), policy_(policy) {}

  // Records a bound pod with its CPU and memory. `node_id` is the id of its node, or kNoNode if the
  // node has no GPUs. INVALID_ARGUMENT for invalid amounts; the pod is then not counted.
  Status Set(const Uid& uid, const std::string& node, placement::NodeId node_id, int64_t cpu_milli,
             Bytes memory);
  // Does nothing for an unknown UID.
  void Remove(const Uid& uid);

  // Call when the node has got GPUs; adds its pods to the cluster.
  void OnNodeAdded(const std::string& node, placement::NodeId node_id);
  // Call when the cluster has removed the node together with its pods.
  void OnNodeRemoved(const std::string& node);

  size_t size() const { return pods_.size(); }

 private:
  struct CpuPod;
  using ByNode = std::unordered_map<std::string, std::vector<CpuPod*>>;
  struct CpuPod {
    ByNode::value_type* node = nullptr;  // the node and all its pods
    uint32_t position = 0;               // in the node's pods
    bool arrived = false;                // reported to the policy
    int64_t cpu_milli = 0;
    Bytes memory;
    std::optional<placement::PodId> placed_id;
  };
  Status AddToCluster(CpuPod& pod, placement::NodeId node_id);
  void RemoveFromNode(CpuPod& pod);

  placement::Cluster& cluster_;
  placement::Policy& policy_;
  std::unordered_map<Uid, CpuPod> pods_;
  ByNode by_node_;
};

}  // namespace tessera::ledger
