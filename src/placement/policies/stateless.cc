// SPDX-License-Identifier: Apache-2.0
// The policies without own state: for each one, a function that scores a node.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "src/placement/fit.h"
#include "src/placement/pick_by.h"
#include "src/placement/policies/policies.h"
#include "src/placement/scored_policy.h"

namespace tessera::placement {
namespace {

// As ScoredPolicy::Score.
using ScoreNode = float (*)(const NodeView& node, const Demand& demand, Pick* pick);

template <ScoreNode score_node>
class StatelessPolicy : public ScoredPolicy {
 public:
  StatelessPolicy(const Cluster& cluster, std::string_view name)
      : ScoredPolicy(cluster), name_(name) {}
  std::string_view name() const override { return name_; }

 protected:
  float Score(const NodeView& node, ShapeId, const Demand& demand, Pick* pick) override {
    return score_node(node, demand, pick);
  }

 private:
  const std::string_view name_;
};

template <ScoreNode score_node>
std::unique_ptr<Policy> MakeStateless(const Cluster& cluster, std::string_view name) {
  return std::make_unique<StatelessPolicy<score_node>>(cluster, name);
}

// The policies of the FGD experiments divide amounts of CPU and GPU by the size of this node.
constexpr double kReferenceCpuMilli = 128000;
constexpr double kReferenceGpuMilli = 8000;

int64_t SlackOfAllGpus(const NodeView& node) {
  int64_t sum = 0;
  for (const GpuState& gpu : node.gpus) sum += gpu.slack;
  return sum;
}

// BestFit as defined by the FGD experiments: int(100 · (1 − Σ ½·(free − demanded)/max)) over CPU
// (max 128 cores) and GPU (max 8), on the tightest GPU.
float ScoreByBestFit(const NodeView& node, const Demand& demand, Pick* pick) {
  if (!PickTightest(node, demand, pick)) return kUnfit;
  const double cpu = static_cast<double>(node->cpu_free - demand.cpu_milli) / kReferenceCpuMilli;
  const double gpu =
      static_cast<double>(SlackOfAllGpus(node) - demand.milli()) / kReferenceGpuMilli;
  return static_cast<float>(static_cast<int>(100 * (1 - 0.5 * cpu - 0.5 * gpu)));
}

// DotProd as defined by the FGD experiments: int(100 · (1 − (free · demanded) / 2)) on the tightest
// GPU, with vectors of CPU (in units of 128 cores) and GPU (in units of 8). Nodes with few free
// resources, or with free resources in another proportion than the pod's, come first.
float ScoreByDotProd(const NodeView& node, const Demand& demand, Pick* pick) {
  if (!PickTightest(node, demand, pick)) return kUnfit;
  const double cpu = static_cast<double>(node->cpu_free) / kReferenceCpuMilli *
                     (static_cast<double>(demand.cpu_milli) / kReferenceCpuMilli);
  const double gpu = static_cast<double>(SlackOfAllGpus(node)) / kReferenceGpuMilli *
                     (static_cast<double>(demand.milli()) / kReferenceGpuMilli);
  return static_cast<float>(static_cast<int64_t>(100 * (1 - (cpu + gpu) / 2)));
}

int PointsForSize(const NodeState& node, PodSize wanted) {
  int sizes = 0;
  for (size_t n = static_cast<size_t>(PodSize::kShare); n < kPodSizes; ++n) {
    sizes += node.pods_by_size[n] > 0;
  }
  if (node.pods_by_size[static_cast<size_t>(wanted)] > 0) return sizes == 1 ? 75 : 50;
  return sizes == 0 ? 25 : 0;
}

// GpuClustering, as the FGD experiments define it, gathers pods of one class (share, one, two …
// GPUs). A node gets 75 points if all its GPU pods are of the pod's class, 50 if some are, 25 if it
// has no GPU pods, 0 if all are of other sizes. It gets up to 25 more points for how full it is.
// Pods without GPUs are placed first fit.
float ScoreByGpuClustering(const NodeView& node, const Demand& demand, Pick* pick) {
  if (!PickTightest(node, demand, pick)) return kUnfit;
  if (demand.gpu_demands.empty()) return 0;
  const int64_t most = static_cast<int64_t>(kReferenceGpuMilli);
  const int64_t fullness = 25 * (most - SlackOfAllGpus(node)) / most;
  return static_cast<float>(fullness + PointsForSize(*node.state, PodSizeOf(demand)));
}

int PointsForPacking(const NodeView& node, uint64_t picked) {
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

// GpuPacking as defined by the FGD experiments: first GPUs in use, with more points for fuller GPUs
// (50 … 100 points), then idle GPUs of nodes in use, with more points for fewer GPUs (33 … 50),
// then idle nodes, with more points for smaller nodes (below 33). Pods without GPUs are placed
// first fit.
float ScoreByGpuPacking(const NodeView& node, const Demand& demand, Pick* pick) {
  if (!PickTightest(node, demand, pick)) return kUnfit;
  if (demand.gpu_demands.empty()) return 0;
  return static_cast<float>(PointsForPacking(node, pick->all()));
}

// Alibaba's gpushare: the GPU with the smallest free memory that suffices, regardless of compute.
// It does not rank nodes, so the first node that fits is taken.
float ScoreByGpuShare(const NodeView& node, const Demand& demand, Pick* pick) {
  const auto smallest = [&](std::span<const GpuState> gpus, const GpuDemand& gpu_demand) {
    return FirstBy(gpus, gpu_demand, demand, [](const GpuState& a, const GpuState& b) {
      return a.free_bytes < b.free_bytes;
    });
  };
  return PickOrTightest(node, demand, pick, smallest) ? 0 : kUnfit;
}

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

bool PickBy(Preference preference, const NodeView& node, const Demand& demand, Pick* pick) {
  if (preference == Preference::kBinpack) return PickTightest(node, demand, pick);
  return PickOrTightest(node, demand, pick,
                        [&](std::span<const GpuState> gpus, const GpuDemand& gpu_demand) {
                          return FirstBy(gpus, gpu_demand, demand,
                                         [](auto& a, auto& b) { return a.slack > b.slack; });
                        });
}

// Binpack or spread, separately for nodes and GPUs, as HAMi and Volcano offer it. The fullness of a
// node is that of its GPUs after the placement; for a pod without GPUs, it is that of its CPU.
template <Preference node_preference, Preference gpu_preference>
float ScoreByUse(const NodeView& node, const Demand& demand, Pick* pick) {
  if (!PickBy(gpu_preference, node, demand, pick)) return kUnfit;
  const double used = UsedWith(node, demand);
  return static_cast<float>(node_preference == Preference::kBinpack ? used : -used);
}

}  // namespace

std::unique_ptr<Policy> MakeBestFit(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByBestFit>(cluster, "BestFit");
}

std::unique_ptr<Policy> MakeDotProd(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByDotProd>(cluster, "DotProd");
}

std::unique_ptr<Policy> MakeGpuClustering(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByGpuClustering>(cluster, "GpuClustering");
}

std::unique_ptr<Policy> MakeGpuPacking(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByGpuPacking>(cluster, "GpuPacking");
}

std::unique_ptr<Policy> MakeGpuShare(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByGpuShare>(cluster, "GpuShare");
}

std::unique_ptr<Policy> MakeNodeBinpackGpuBinpack(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByUse<Preference::kBinpack, Preference::kBinpack>>(
      cluster, "NodeBinpackGpuBinpack");
}

std::unique_ptr<Policy> MakeNodeBinpackGpuSpread(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByUse<Preference::kBinpack, Preference::kSpread>>(
      cluster, "NodeBinpackGpuSpread");
}

std::unique_ptr<Policy> MakeNodeSpreadGpuBinpack(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByUse<Preference::kSpread, Preference::kBinpack>>(
      cluster, "NodeSpreadGpuBinpack");
}

std::unique_ptr<Policy> MakeNodeSpreadGpuSpread(Cluster& cluster, const PolicyOptions&) {
  return MakeStateless<ScoreByUse<Preference::kSpread, Preference::kSpread>>(cluster,
                                                                             "NodeSpreadGpuSpread");
}

}  // namespace tessera::placement
