// SPDX-License-Identifier: Apache-2.0
// BestFit as defined by the FGD experiments: int(100 · (1 − Σ ½·(free − demanded)/max)) over CPU
// (max 128 cores) and GPU (max 8), on the tightest GPU.
#include "src/placement/fit.h"
#include "src/placement/policies/policies.h"
#include "src/placement/policies/reference_node.h"
#include "src/placement/scored_policy.h"

namespace tessera::placement {
namespace {

class BestFit : public ScoredPolicy {
 public:
  using ScoredPolicy::ScoredPolicy;
  std::string_view name() const override { return "BestFit"; }

 protected:
  float Score(const NodeView& node, ShapeId, const Demand& demand, Pick* pick) override {
    if (!PickTightest(node, demand, pick)) return kUnfit;
    const double cpu = static_cast<double>(node->cpu_free - demand.cpu_milli) / kReferenceCpuMilli;
    const double gpu = static_cast<double>(SlackOfAll(node) - demand.milli()) / kReferenceGpuMilli;
    return static_cast<float>(static_cast<int>(100 * (1 - 0.5 * cpu - 0.5 * gpu)));
  }
};

}  // namespace

std::unique_ptr<Policy> MakeBestFit(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<BestFit>(cluster);
}

}  // namespace tessera::placement
