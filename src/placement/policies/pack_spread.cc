// SPDX-License-Identifier: Apache-2.0
// Binpack or spread, separately for nodes and GPUs, as HAMi and Volcano offer it. The fullness of a
// node is that of its GPUs after the placement; for a pod without GPUs, it is that of its CPU.
#include "src/placement/fit.h"
#include "src/placement/pick_by.h"
#include "src/placement/policies/policies.h"
#include "src/placement/scored_policy.h"

namespace tessera::placement {
namespace {

enum class Preference { kBinpack, kSpread };

// Thousandths of the node in use with the pod.
double UsedWith(const NodeView& node, const Demand& demand) {
  if (demand.gpu_demands.empty()) {
    if (node->cpu_total == 0) return 0;
    return 1000.0 * static_cast<double>(node->cpu_total - node->cpu_free + demand.cpu_milli) /
           static_cast<double>(node->cpu_total);
  }
  int64_t used = demand.milli(), gpus = 0;
  for (const GpuState& gpu : node.gpus) {
    if (!gpu.healthy) continue;
    ++gpus;
    used += gpu.kind == kNoMigProfile ? 1000 - gpu.slack : gpu.idle() ? 0 : 1000;
  }
  return static_cast<double>(used) / static_cast<double>(gpus);
}

class PackSpread : public ScoredPolicy {
 public:
  PackSpread(const Cluster& cluster, std::string_view name, Preference node_preference,
             Preference gpu_preference)
      : ScoredPolicy(cluster),
        name_(name),
        node_preference_(node_preference),
        gpu_preference_(gpu_preference) {}
  std::string_view name() const override { return name_; }

 protected:
  float Score(const NodeView& node, ShapeId, const Demand& demand, Pick* pick) override {
    if (!PickGpus(node, demand, pick)) return kUnfit;
    const double used = UsedWith(node, demand);
    return static_cast<float>(node_preference_ == Preference::kBinpack ? used : -used);
  }

 private:
  bool PickGpus(const NodeView& node, const Demand& demand, Pick* pick) const {
    if (gpu_preference_ == Preference::kBinpack) return PickTightest(node, demand, pick);
    return PickOrTightest(node, demand, pick,
                          [&](std::span<const GpuState> gpus, const GpuDemand& gpu_demand) {
                            return FirstBy(gpus, gpu_demand, demand,
                                           [](auto& a, auto& b) { return a.slack > b.slack; });
                          });
  }

  const std::string_view name_;
  const Preference node_preference_, gpu_preference_;
};

}  // namespace

std::unique_ptr<Policy> MakeNodeBinpackGpuBinpack(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<PackSpread>(cluster, "NodeBinpackGpuBinpack", Preference::kBinpack,
                                      Preference::kBinpack);
}

std::unique_ptr<Policy> MakeNodeBinpackGpuSpread(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<PackSpread>(cluster, "NodeBinpackGpuSpread", Preference::kBinpack,
                                      Preference::kSpread);
}

std::unique_ptr<Policy> MakeNodeSpreadGpuBinpack(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<PackSpread>(cluster, "NodeSpreadGpuBinpack", Preference::kSpread,
                                      Preference::kBinpack);
}

std::unique_ptr<Policy> MakeNodeSpreadGpuSpread(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<PackSpread>(cluster, "NodeSpreadGpuSpread", Preference::kSpread,
                                      Preference::kSpread);
}

}  // namespace tessera::placement
