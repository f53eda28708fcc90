// SPDX-License-Identifier: Apache-2.0
// Groups the GPUs of a node by their PCIe distance like gpu-manager: a tree in which it looks for a
// single GPU in a group that is already broken ("fragment" mode), or for several close GPUs ("link"
// mode). It ignores NVLink. Private to this room.
//
// Threads: immutable after construction. Cost: the constructor compares all pairs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/placement/cluster.h"

namespace tessera::placement {

struct NodeLinks;

class GpuTree {
 public:
  // For a node with `size` GPUs. `links` may cover only the first GPUs; null if links are unknown.
  GpuTree(size_t size, const NodeLinks* links);

  // Picks `count` of the GPUs in `available`, by position in `gpus`, the GPUs of the node. 0 if
  // fewer are available.
  uint64_t Fragment(uint64_t available, int count, std::span<const GpuState> gpus) const;
  uint64_t Link(uint64_t available, int count, std::span<const GpuState> gpus) const;

 private:
  struct Group {
    uint64_t members = 0;
    int level = 0;  // larger is farther
  };
  struct Rank;

  void Connect(const NodeLinks& links);
  static Rank RankOf(const Group& group, uint64_t available, std::span<const GpuState> gpus);

  uint64_t all_;
  std::vector<Group> groups_;  // by level, then as they were found
};

}  // namespace tessera::placement
