// SPDX-License-Identifier: Apache-2.0
// GpuClustering, as the FGD experiments define it, gathers pods of one class (share, one, two …
// GPUs). A node gets 75 points if all its GPU pods are of the pod's class, 50 if some are, 25 if it
// has no GPU pods, 0 if all are of other sizes. It gets up to 25 more points for how full it is.
// Pods without GPUs are placed first fit.
#include "src/placement/fit.h"
#include "src/placement/policies/policies.h"
#include "src/placement/policies/reference_node.h"
#include "src/placement/scored_policy.h"

namespace tessera::placement {
namespace {

class GpuClustering : public ScoredPolicy {
 public:
  using ScoredPolicy::ScoredPolicy;
  std::string_view name() const override { return "GpuClustering"; }

 protected:
  float Score(const NodeView& node, ShapeId, const Demand& demand, Pick* pick) override {
    if (!PickTightest(node, demand, pick)) return kUnfit;
    if (demand.gpu_demands.empty()) return 0;
    const int64_t most = static_cast<int64_t>(kReferenceGpuMilli);
    const int64_t fullness = 25 * (most - SlackOfAll(node)) / most;
    return static_cast<float>(fullness + PointsFor(*node.state, PodSizeOf(demand)));
  }

 private:
  static int PointsFor(const NodeState& node, PodSize wanted) {
    int sizes = 0;
    for (size_t n = static_cast<size_t>(PodSize::kShare); n < kPodSizes; ++n) {
      sizes += node.pods_by_size[n] > 0;
    }
    if (node.pods_by_size[static_cast<size_t>(wanted)] > 0) return sizes == 1 ? 75 : 50;
    return sizes == 0 ? 25 : 0;
  }
};

}  // namespace

std::unique_ptr<Policy> MakeGpuClustering(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<GpuClustering>(cluster);
}

}  // namespace tessera::placement
