// SPDX-License-Identifier: Apache-2.0
// Nodes and demands for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/demand.h"

namespace tessera::placement::testing {

inline NodeSpec MakeNode(std::string name, int gpus, Bytes gpu_memory = GiB(80),
                         std::string model = "A100") {
  NodeSpec spec{.name = std::move(name), .cpu_milli = 96000, .memory = GiB(384)};
  for (int i = 0; i < gpus; ++i) {
    spec.gpus.push_back(
        {.uuid = fmt::format("GPU-{}-{}", spec.name, i), .model = model, .memory = gpu_memory});
  }
  return spec;
}

inline Demand MakeDemand(int count, int milli, Bytes bytes = Bytes(0), int64_t cpu_milli = 1000) {
  Demand demand{.cpu_milli = cpu_milli, .memory = GiB(1)};
  if (count > 0)
    demand.gpu_demands.push_back({.count = count, .milli = MilliGpu(milli), .bytes = bytes});
  return demand;
}

inline Pick PickOf(uint64_t mask) {
  Pick pick;
  pick.masks[0] = mask;
  return pick;
}

inline std::vector<GpuState> GpusOf(const Cluster& cluster, NodeId node) {
  const auto view = cluster.node(node);
  return {view.gpus.begin(), view.gpus.end()};
}

// The state that Place and Remove change, without versions, for comparisons.
struct NodeSnapshot {
  std::vector<GpuState> gpus;
  int64_t cpu_free = 0, memory_free = 0;
  std::array<uint32_t, kPodSizes> pods_by_size{};
  std::vector<PodId> pods;
  bool operator==(const NodeSnapshot&) const = default;
};

inline std::vector<NodeSnapshot> SnapshotOf(const Cluster& cluster) {
  std::vector<NodeSnapshot> snapshot;
  for (NodeId node = 0; node < cluster.size(); ++node) {
    const NodeView view = cluster.node(node);
    const auto pods = cluster.pods_of(node);
    snapshot.push_back({GpusOf(cluster, node),
                        view->cpu_free,
                        view->memory_free,
                        view->pods_by_size,
                        {pods.begin(), pods.end()}});
  }
  return snapshot;
}

}  // namespace tessera::placement::testing
