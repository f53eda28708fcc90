// SPDX-License-Identifier: Apache-2.0
// Alibaba's gpushare: the GPU with the smallest free memory that suffices, regardless of compute.
// It does not rank nodes, so the first node that fits is taken.
#include "src/placement/pick_by.h"
#include "src/placement/policies/policies.h"
#include "src/placement/scored_policy.h"

namespace tessera::placement {
namespace {

class GpuShare : public ScoredPolicy {
 public:
  using ScoredPolicy::ScoredPolicy;
  std::string_view name() const override { return "GpuShare"; }

 protected:
  float Score(const NodeView& node, ShapeId, const Demand& demand, Pick* pick) override {
    const auto smallest = [&](std::span<const GpuState> gpus, const GpuDemand& gpu_demand) {
      return FirstBy(gpus, gpu_demand, demand, [](const GpuState& a, const GpuState& b) {
        return a.free_bytes < b.free_bytes;
      });
    };
    return PickOrTightest(node, demand, pick, smallest) ? 0 : kUnfit;
  }
};

}  // namespace

std::unique_ptr<Policy> MakeGpuShare(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<GpuShare>(cluster);
}

}  // namespace tessera::placement
