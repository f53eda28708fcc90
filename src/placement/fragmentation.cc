// SPDX-License-Identifier: Apache-2.0
#include "src/placement/fragmentation.h"

#include <algorithm>
#include <set>

#include "src/placement/fit.h"

namespace tessera::placement {
namespace {

// Whether F of the pod depends only on CPU, model and thousandths. The sums over all regular pods
// are computed in advance.
bool IsRegular(const Demand& demand) {
  if (demand.gpu_demands.empty()) return true;
  if (demand.gpu_demands.size() > 1 || !demand.gpu_filter.empty()) return false;
  const GpuDemand& gpu_demand = demand.gpu_demands[0];
  return gpu_demand.kind == kNoMigProfile && gpu_demand.bytes <= Bytes(0) &&
         (gpu_demand.whole() || gpu_demand.count == 1);
}

// The slack after a pod can be negative: demanded memory is rounded up to thousandths, free memory
// down.
int Clamped(int16_t slack) { return std::max<int>(slack, 0); }

}  // namespace

// Sums of weights over the pods that may use one model, by free CPU: row k is for nodes with enough
// CPU for the k pods that need the least CPU.
struct Fragmentation::ModelTable {
  std::vector<int64_t> cpus;  // CPU of each pod, ascending
  std::vector<float> shares;  // row × (ranks + 1) + rank: weight of shares up to this rank
  // row × (kMaxGpusPerNode + 1) + n: weight of pods with up to n whole GPUs
  std::vector<float> wholes;
};

Fragmentation::Fragmentation(const Cluster& cluster, std::span<const MixEntry> mix) {
  double total = 0;
  for (const MixEntry& entry : mix) total += entry.weight;
  std::set<int> shares;
  for (const MixEntry& entry : mix) {
    const Demand& demand = cluster.demand(entry.shape);
    const bool regular = IsRegular(demand);
    (regular ? regular_ : irregular_).push_back({demand, entry.weight / total});
    if (!regular) continue;
    regular_weight_ += static_cast<float>(entry.weight / total);
    if (!demand.gpu_demands.empty() && !demand.gpu_demands[0].whole()) {
      shares.insert(static_cast<int>(demand.gpu_demands[0].milli.count()));
    }
  }
  std::sort(regular_.begin(), regular_.end(),
            [](auto& a, auto& b) { return a.demand.cpu_milli < b.demand.cpu_milli; });
  ranks_ = shares.size();
  for (size_t slack = 0; slack < rank_.size(); ++slack) {
    rank_[slack] = static_cast<uint16_t>(
        std::distance(shares.begin(), shares.upper_bound(static_cast<int>(slack))));
  }
}

Fragmentation::~Fragmentation() = default;

const Fragmentation::ModelTable& Fragmentation::TableOf(ModelId model) {
  if (model >= tables_.size()) tables_.resize(model + 1);
  if (tables_[model]) return *tables_[model];
  tables_[model] = std::make_unique<ModelTable>();
  ModelTable& table = *tables_[model];
  const size_t width = ranks_ + 1, gpus = kMaxGpusPerNode + 1;
  std::vector<float> share(width), whole(gpus);
  const auto add_row = [&] {
    table.shares.insert(table.shares.end(), share.begin(), share.end());
    table.wholes.insert(table.wholes.end(), whole.begin(), whole.end());
  };
  add_row();
  for (const ExpectedPod& pod : regular_) {
    if (pod.demand.gpu_demands.empty() || !pod.demand.AllowsModel(model)) continue;
    const GpuDemand& gpu_demand = pod.demand.gpu_demands[0];
    const float weight = static_cast<float>(pod.weight);
    if (gpu_demand.whole()) {
      for (size_t n = static_cast<size_t>(gpu_demand.count); n < gpus; ++n) whole[n] += weight;
    } else {
      for (size_t r = rank_[static_cast<size_t>(gpu_demand.milli.count())]; r < width; ++r) {
        share[r] += weight;
      }
    }
    table.cpus.push_back(pod.demand.cpu_milli);
    add_row();
  }
  return table;
}

double Fragmentation::Of(const NodeView& node) {
  std::array<int16_t, kMaxGpusPerNode> slack;
  for (size_t i = 0; i < node.gpus.size(); ++i) slack[i] = node.gpus[i].slack;
  return Of(node, node->cpu_free, slack.data());
}

double Fragmentation::Of(const NodeView& node, int64_t cpu_free, const int16_t* slack) {
  double sum = 0;
  for (const ExpectedPod& pod : irregular_) sum += pod.weight * OfPod(node, cpu_free, slack, pod);
  if (node->mixed_models) {
    for (const ExpectedPod& pod : regular_) sum += pod.weight * OfPod(node, cpu_free, slack, pod);
    return sum;
  }
  return sum + OfRegularPods(node, cpu_free, slack);
}

double Fragmentation::OfRegularPods(const NodeView& node, int64_t cpu_free, const int16_t* slack) {
  const ModelTable& table = TableOf(node->model);
  const size_t row = static_cast<size_t>(
      std::upper_bound(table.cpus.begin(), table.cpus.end(), cpu_free) - table.cpus.begin());
  const float* const shares = table.shares.data() + row * (ranks_ + 1);
  const size_t size = node.gpus.size();
  int largest = 0, idle_milli = 0;
  size_t idle_gpus = 0;
  for (size_t i = 0; i < size; ++i) {
    idle_milli += Clamped(slack[i]);
    idle_gpus += slack[i] == 1000;
    largest = std::max<int>(largest, slack[i]);
  }
  const float share = shares[rank_[static_cast<size_t>(largest)]];
  const float whole = table.wholes[row * (kMaxGpusPerNode + 1) + idle_gpus];
  // For pods that can run on the node, the idle parts of GPUs with too little slack are useless.
  // For all other pods, every idle part is useless.
  float sum = static_cast<float>(idle_milli) * (regular_weight_ - share - whole);
  for (size_t i = 0; i < size; ++i) {
    const int left = Clamped(slack[i]);
    const float useless = share - shares[rank_[static_cast<size_t>(left)]];
    sum += static_cast<float>(left) * (useless + (left < 1000 ? whole : 0));
  }
  return sum;
}

double Fragmentation::OfPod(const NodeView& node, int64_t cpu_free, const int16_t* slack,
                            const ExpectedPod& pod) const {
  const Demand& demand = pod.demand;
  const auto size_of = [](const GpuDemand& gpu_demand) {
    return std::pair(gpu_demand.milli, gpu_demand.bytes);
  };
  const auto largest = std::max_element(demand.gpu_demands.begin(), demand.gpu_demands.end(),
                                        [&](auto& a, auto& b) { return size_of(a) < size_of(b); });
  int idle = 0, useless = 0, enough = 0;
  for (size_t i = 0; i < node.gpus.size(); ++i) {
    const int left = Clamped(slack[i]);
    idle += left;
    if (demand.gpu_demands.empty()) continue;
    const GpuState& gpu = node.gpus[i];
    const bool large_enough = largest->bytes <= Bytes(gpu.total_bytes);
    const bool room = left > 0 && large_enough && gpu.kind == largest->kind &&
                      demand.AllowsModel(gpu.model) && demand.AllowsGpu(gpu.id) &&
                      left >= SlackTakenFrom(gpu, *largest);
    enough += room;
    useless += room ? 0 : left;
  }
  const bool fits =
      !demand.gpu_demands.empty() && cpu_free >= demand.cpu_milli && enough >= demand.gpus();
  return fits ? useless : idle;
}

}  // namespace tessera::placement
