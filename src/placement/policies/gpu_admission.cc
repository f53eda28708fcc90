// SPDX-License-Identifier: Apache-2.0
// TKEStack's scheduling. gpu-admission takes the first node that fits in the order of (free cores,
// free memory, name), the fullest first. GPUs are picked in the same order ("GpuAdmission"), or by
// gpu-manager's modes share, fragment and link ("GpuManager"). The real gpu-manager picks the GPUs
// only after the pod is bound.
#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include "src/placement/linked_groups.h"
#include "src/placement/pick_by.h"
#include "src/placement/policies/gpu_tree.h"
#include "src/placement/policies/policies.h"

namespace tessera::placement {
namespace {

using Gpus = std::span<const GpuState>;

// The order in which gpu-admission and gpu-manager sort GPUs: the tightest first.
uint64_t TightestByCores(Gpus gpus, const GpuDemand& gpu_demand, const Demand& demand) {
  return FirstBy(gpus, gpu_demand, demand, [](const GpuState& a, const GpuState& b) {
    return std::tuple(a.free_milli, a.free_bytes, a.pods) <
           std::tuple(b.free_milli, b.free_bytes, b.pods);
  });
}

bool PickAsGpuAdmission(const NodeView& node, const Demand& demand, Pick* pick) {
  return PickOrTightest(node, demand, pick, [&](Gpus gpus, const GpuDemand& gpu_demand) {
    return TightestByCores(gpus, gpu_demand, demand);
  });
}

// One GPU comes from a partly used group, several GPUs come from one group, and a share comes from
// the tightest GPU.
bool PickAsGpuManager(const NodeView& node, const Demand& demand, Pick* pick) {
  const GpuTree tree(node.gpus.size(), node->groups ? &node->groups->links() : nullptr);
  return PickOrTightest(node, demand, pick, [&](Gpus gpus, const GpuDemand& gpu_demand) {
    if (!gpu_demand.whole()) return TightestByCores(gpus, gpu_demand, demand);
    const NodeView now{node.state, gpus};
    const uint64_t available = GpusWithRoom(now, gpu_demand, demand);
    return gpu_demand.count == 1 ? tree.PickFragment(available, 1, gpus)
                                 : tree.PickLinked(available, gpu_demand.count, gpus);
  });
}

using Picker = bool (*)(const NodeView&, const Demand&, Pick*);

class GpuAdmissionPolicy : public Policy {
 public:
  GpuAdmissionPolicy(const Cluster& cluster, std::string_view name, Picker picker)
      : cluster_(cluster), name_(name), picker_(picker) {}
  std::string_view name() const override { return name_; }

  std::optional<Placement> Choose(ShapeId shape) override {
    const Demand& demand = cluster_.demand(shape);
    NodeId best = kNoNode;
    Key best_key;
    for (NodeId node = 0; node < cluster_.size(); ++node) {
      if (!Fits(cluster_.node(node), demand)) continue;
      const Key key = KeyOf(node);
      if (best != kNoNode && key >= best_key) continue;
      best = node;
      best_key = key;
    }
    if (best == kNoNode) return std::nullopt;
    Placement decision{.node = best};
    picker_(cluster_.node(best), demand, &decision.pick);
    return decision;
  }

  // The score is the negative rank: an order by name gives no number.
  std::span<const float> Scores(ShapeId shape) override {
    const Demand& demand = cluster_.demand(shape);
    std::vector<std::pair<Key, NodeId>> order;
    for (NodeId node = 0; node < cluster_.size(); ++node) {
      if (Fits(cluster_.node(node), demand)) order.emplace_back(KeyOf(node), node);
    }
    std::ranges::sort(order);
    scores_.assign(cluster_.size(), kUnfit);
    for (size_t i = 0; i < order.size(); ++i) scores_[order[i].second] = -static_cast<float>(i);
    return scores_;
  }

  std::optional<Pick> PickOn(ShapeId shape, NodeId node) override {
    Pick pick;
    if (!picker_(cluster_.node(node), cluster_.demand(shape), &pick)) return std::nullopt;
    return pick;
  }

 private:
  using Key = std::tuple<int64_t, int64_t, std::string_view>;

  Key KeyOf(NodeId node) const {
    int64_t milli = 0, bytes = 0;
    for (const GpuState& gpu : cluster_.node(node).gpus) {
      if (!gpu.healthy) continue;
      milli += gpu.free_milli;
      bytes += gpu.free_bytes;
    }
    return {milli, bytes, cluster_.name(node)};
  }

  const Cluster& cluster_;
  const std::string_view name_;
  const Picker picker_;
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<Policy> MakeGpuAdmission(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<GpuAdmissionPolicy>(cluster, "GpuAdmission", PickAsGpuAdmission);
}

std::unique_ptr<Policy> MakeGpuManager(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<GpuAdmissionPolicy>(cluster, "GpuManager", PickAsGpuManager);
}

}  // namespace tessera::placement
