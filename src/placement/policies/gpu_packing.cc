// SPDX-License-Identifier: Apache-2.0
// GpuPacking as defined by the FGD experiments: first GPUs in use, with more points for fuller GPUs
// (50 … 100 points), then idle GPUs of nodes in use, with more points for fewer GPUs (33 … 50),
// then idle nodes, with more points for smaller nodes (below 33). Pods without GPUs are placed
// first fit.
#include <algorithm>

#include "src/placement/fit.h"
#include "src/placement/policies/policies.h"
#include "src/placement/scored_policy.h"

namespace tessera::placement {
namespace {

class GpuPacking : public ScoredPolicy {
 public:
  using ScoredPolicy::ScoredPolicy;
  std::string_view name() const override { return "GpuPacking"; }

 protected:
  float Score(const NodeView& node, ShapeId, const Demand& demand, Pick* pick) override {
    if (!PickTightest(node, demand, pick)) return kUnfit;
    if (demand.gpu_demands.empty()) return 0;
    return static_cast<float>(Points(node, pick->all()));
  }

 private:
  static int Points(const NodeView& node, uint64_t picked) {
    int idle = 0, idle_picked = 0, left_percent = 0;
    for (size_t i = 0; i < node.gpus.size(); ++i) {
      const int slack = node.gpus[i].slack;
      idle += slack == 1000;
      if ((picked >> i & 1) == 0) continue;
      idle_picked += slack == 1000;
      left_percent += slack * 100 / 1000;
    }
    if (idle == static_cast<int>(node.gpus.size())) return std::max(33 - idle, idle);
    if (idle_picked > 0) return std::max(50 - idle_picked, 33);
    return std::max(100 - left_percent / 10, 50);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeGpuPacking(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<GpuPacking>(cluster);
}

}  // namespace tessera::placement
