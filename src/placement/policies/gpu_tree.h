// SPDX-License-Identifier: Apache-2.0
// Groups the GPUs of a node in a tree by their PCIe distance, like gpu-manager. "Fragment" mode
// takes a single GPU from a group that is already partly used; "link" mode takes several close
// GPUs. NVLink is ignored. Included only in src/placement.
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

  // Both functions pick `count` of the GPUs in `available`, a mask of positions in `gpus`, the
  // node's GPUs. They return 0 if fewer are available.
  uint64_t PickFragment(uint64_t available, int count, std::span<const GpuState> gpus) const;
  uint64_t PickLinked(uint64_t available, int count, std::span<const GpuState> gpus) const;

 private:
  struct PcieGroup {
    uint64_t members = 0;
    int level = 0;  // larger is farther
  };
  struct GroupRank;

  void BuildGroups(const NodeLinks& links);
  static GroupRank RankOf(const PcieGroup& group, uint64_t available,
                          std::span<const GpuState> gpus);

  uint64_t all_;
  std::vector<PcieGroup> groups_;  // by level, then in the order of discovery
};

}  // namespace tessera::placement
