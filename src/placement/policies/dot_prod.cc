// SPDX-License-Identifier: Apache-2.0
// DotProd as defined by the FGD experiments: int(100 · (1 − (free · demanded) / 2)) on the tightest
// GPU, with vectors of CPU (in units of 128 cores) and GPU (in units of 8). Nodes with few free
// resources, or with free resources in another proportion than the pod's, come first.
#include "src/placement/fit.h"
#include "src/placement/policies/policies.h"
#include "src/placement/policies/reference_node.h"
#include "src/placement/scored_policy.h"

namespace tessera::placement {
namespace {

class DotProd : public ScoredPolicy {
 public:
  using ScoredPolicy::ScoredPolicy;
  std::string_view name() const override { return "DotProd"; }

 protected:
  float Score(const NodeView& node, ShapeId, const Demand& demand, Pick* pick) override {
    if (!PickTightest(node, demand, pick)) return kUnfit;
    const double cpu = static_cast<double>(node->cpu_free) / kReferenceCpuMilli *
                       (static_cast<double>(demand.cpu_milli) / kReferenceCpuMilli);
    const double gpu = static_cast<double>(SlackOfAll(node)) / kReferenceGpuMilli *
                       (static_cast<double>(demand.milli()) / kReferenceGpuMilli);
    return static_cast<float>(static_cast<int64_t>(100 * (1 - (cpu + gpu) / 2)));
  }
};

}  // namespace

std::unique_ptr<Policy> MakeDotProd(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<DotProd>(cluster);
}

}  // namespace tessera::placement
