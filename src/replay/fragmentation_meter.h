// SPDX-License-Identifier: Apache-2.0
// The fragmentation of a cluster, updated node by node. Included only in src/replay. Threads: one.
#pragma once

#include <span>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/fragmentation.h"

namespace tessera::replay {

class FragmentationMeter {
 public:
  FragmentationMeter(const placement::Cluster& cluster, std::span<const placement::MixEntry> mix)
      : cluster_(cluster), fragmentation_(cluster, mix), by_node_(cluster.size()) {
    for (placement::NodeId node = 0; node < cluster.size(); ++node) Update(node);
  }

  // Call when the node has changed.
  void Update(placement::NodeId node) {
    const double now = fragmentation_.Of(cluster_.node(node));
    total_ += now - by_node_[node];
    by_node_[node] = now;
  }
  // The fragmentation in thousandths of a GPU.
  double total() const { return total_; }

 private:
  const placement::Cluster& cluster_;
  placement::Fragmentation fragmentation_;
  std::vector<double> by_node_;
  double total_ = 0;
};

}  // namespace tessera::replay
