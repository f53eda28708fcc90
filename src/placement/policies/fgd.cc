// SPDX-License-Identifier: Apache-2.0
// Fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023) takes
// the node where fragmentation for the expected pods grows least. The score is int(100 · sigmoid((F
// before − F after) / 1000)). The rounding is part of the policy: among many almost equal nodes it
// takes the first, which fills nodes up. Without a mix all placements are equal, and the policy is
// first fit.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "src/placement/fit.h"
#include "src/placement/fragmentation.h"
#include "src/placement/policies/policies.h"
#include "src/placement/scored_policy.h"

namespace tessera::placement {
namespace {

class Fgd : public ScoredPolicy {
 public:
  Fgd(const Cluster& cluster, const PolicyOptions& options)
      : ScoredPolicy(cluster), fragmentation_(cluster, options.mix) {}
  std::string_view name() const override { return "FGD"; }

 protected:
  float Score(const NodeView& node, ShapeId, const Demand& demand, Pick* pick) override {
    std::array<int16_t, kMaxGpusPerNode> after;
    const int64_t cpu_left = node->cpu_free - demand.cpu_milli;
    if (demand.gpu_demands.size() == 1 && demand.gpu_demands[0].count == 1 &&
        !demand.gpu_demands[0].whole()) {
      return HostFits(*node.state, demand) ? BestGpu(node, demand, after.data(), pick) : kUnfit;
    }
    if (!PickTightest(node, demand, pick)) return kUnfit;
    SlackAfter(node, demand, *pick, after.data());
    return Quantized(fragmentation_.Of(node) - fragmentation_.Of(node, cpu_left, after.data()));
  }

 private:
  static float Quantized(double gain) {
    return static_cast<float>(static_cast<int>(100 / (1 + std::exp(-gain / 1000))));
  }

  // Tries all GPUs with room for the demanded share of one GPU, and picks the best.
  float BestGpu(const NodeView& node, const Demand& demand, int16_t* after, Pick* pick) {
    const GpuDemand& gpu_demand = demand.gpu_demands[0];
    const uint64_t gpus_with_room = GpusWithRoom(node, gpu_demand, demand);
    if (gpus_with_room == 0) return kUnfit;
    const double before = fragmentation_.Of(node);
    *pick = {};
    for (size_t i = 0; i < node.gpus.size(); ++i) after[i] = node.gpus[i].slack;
    float best = kUnfit;
    for (uint64_t left = gpus_with_room; left != 0; left &= left - 1) {
      const size_t i = static_cast<size_t>(std::countr_zero(left));
      const GpuState& gpu = node.gpus[i];
      if (HasEqual(node, gpus_with_room & ~left, i)) continue;
      after[i] -= static_cast<int16_t>(SlackTakenFrom(gpu, gpu_demand));
      const float score =
          Quantized(before - fragmentation_.Of(node, node->cpu_free - demand.cpu_milli, after));
      after[i] = gpu.slack;
      if (score <= best) continue;
      best = score;
      pick->masks[0] = uint64_t{1} << i;
    }
    return best;
  }

  // Whether a GPU in `tried` has equal slack and memory. Such GPUs have equal scores.
  static bool HasEqual(const NodeView& node, uint64_t tried, size_t i) {
    const GpuState& b = node.gpus[i];
    for (; tried != 0; tried &= tried - 1) {
      const GpuState& a = node.gpus[static_cast<size_t>(std::countr_zero(tried))];
      if (a.slack == b.slack && a.total_bytes == b.total_bytes && a.model == b.model) return true;
    }
    return false;
  }

  Fragmentation fragmentation_;
};

}  // namespace

std::unique_ptr<Policy> MakeFgd(Cluster& cluster, const PolicyOptions& options) {
  return std::make_unique<Fgd>(cluster, options);
}

}  // namespace tessera::placement
