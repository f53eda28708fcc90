// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/node_trial.h"

#include <bit>

#include "src/placement/fit.h"

namespace tessera::ledger {

using placement::Demand;
using placement::GpuDemand;
using placement::GpuState;
using placement::Pick;

NodeTrial::NodeTrial(const placement::Cluster& cluster, placement::NodeId node) {
  const placement::NodeView view = cluster.node(node);
  state_ = *view.state;
  state_.cpu_free = state_.cpu_total;
  state_.memory_free = state_.memory_total;
  gpus_.assign(view.gpus.begin(), view.gpus.end());
  for (GpuState& gpu : gpus_) {
    gpu.free_bytes = gpu.total_bytes;
    gpu.free_milli = static_cast<int32_t>(kWholeGpu.count());
    gpu.slack = gpu.healthy && gpu.kind == placement::kNoMigProfile ? 1000 : 0;
    gpu.pods = 0;
    gpu.held_whole = false;
  }
}

void NodeTrial::Add(const Demand& demand, const Pick& pick) {
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    const GpuDemand& gpu_demand = demand.gpu_demands[n];
    for (uint64_t remaining = pick.masks[n]; remaining != 0; remaining &= remaining - 1) {
      GpuState& gpu = gpus_[static_cast<size_t>(std::countr_zero(remaining))];
      gpu.slack =
          static_cast<int16_t>(std::max(0, gpu.slack - placement::SlackTakenFrom(gpu, gpu_demand)));
      gpu.free_milli -= static_cast<int32_t>(gpu_demand.milli.count());
      gpu.free_bytes -= gpu_demand.whole() ? gpu.total_bytes : gpu_demand.bytes.count();
      gpu.held_whole |= gpu_demand.whole();
      ++gpu.pods;
    }
  }
}

bool NodeTrial::HasRoom(const Demand& demand, const Pick& pick) const {
  NodeTrial with = *this;
  with.Add(demand, pick);
  for (uint64_t remaining = pick.all(); remaining != 0; remaining &= remaining - 1) {
    if (IsOverassigned(with.gpus_[static_cast<size_t>(std::countr_zero(remaining))])) return false;
  }
  return true;
}

bool NodeTrial::Fits(const Demand& demand) const { return placement::Fits(View(), demand); }

std::optional<Pick> NodeTrial::PickFor(const Demand& demand) const {
  Pick pick;
  if (!placement::PickTightest(View(), demand, &pick)) return std::nullopt;
  placement::PreferLinked(View(), demand, &pick);
  return pick;
}

Demand GpusOnly(Demand demand) {
  demand.cpu_milli = 0;
  demand.memory = Bytes(0);
  return demand;
}

}  // namespace tessera::ledger
