// SPDX-License-Identifier: Apache-2.0
#include "src/placement/fit.h"

#include <bit>

#include "src/placement/linked_groups.h"
#include "src/placement/pick_by.h"

namespace tessera::placement {
namespace {

// The GPUs with the least slack, in the order of FirstBy. All idle GPUs have equal slack, so for
// whole GPUs these are the first idle GPUs.
uint64_t Tightest(std::span<const GpuState> gpus, const GpuDemand& gpu_demand,
                  const Demand& demand) {
  if (!gpu_demand.whole()) {
    return FirstBy(gpus, gpu_demand, demand,
                   [](const GpuState& a, const GpuState& b) { return a.slack < b.slack; });
  }
  const GpuFit fits(gpu_demand, demand);
  uint64_t chosen = 0;
  int found = 0;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!fits(gpus[i])) continue;
    chosen |= uint64_t{1} << i;
    if (++found == gpu_demand.count) return chosen;
  }
  return 0;
}

// Whether the demand is for several whole GPUs, between which links matter.
bool IsGroup(const GpuDemand& gpu_demand) {
  return gpu_demand.whole() && gpu_demand.kind == kNoMigProfile && gpu_demand.count > 1;
}

// The GPUs in `mask` that the demand allows by model and UUID.
uint64_t Allowed(std::span<const GpuState> gpus, const Demand& demand, uint64_t mask) {
  for (uint64_t left = mask; left != 0; left &= left - 1) {
    const GpuState& gpu = gpus[std::countr_zero(left)];
    if (!demand.AllowsModel(gpu.model) || !demand.AllowsGpu(gpu.id)) mask &= ~(left & -left);
  }
  return mask;
}

}  // namespace

bool PickTightest(const NodeView& node, const Demand& demand, Pick* pick) {
  if (!HostFits(*node.state, demand)) return false;
  return PickEach(node, demand, pick,
                  [&](std::span<const GpuState> gpus, const GpuDemand& gpu_demand) {
                    return Tightest(gpus, gpu_demand, demand);
                  });
}

bool Fits(const NodeView& node, const Demand& demand) {
  if (!HostFits(*node.state, demand)) return false;
  if (demand.gpu_demands.empty()) return true;
  if (demand.gpu_demands.size() > 1) {
    Pick pick;
    return PickTightest(node, demand, &pick);
  }
  const GpuDemand& gpu_demand = demand.gpu_demands[0];
  const GpuFit fits(gpu_demand, demand);
  int found = 0;
  for (const GpuState& gpu : node.gpus) {
    if (fits(gpu) && ++found == gpu_demand.count) return true;
  }
  return false;
}

uint64_t GpusWithRoom(const NodeView& node, const GpuDemand& gpu_demand, const Demand& demand) {
  uint64_t gpus = 0;
  uint64_t bit = 1;
  for (const GpuState& gpu : node.gpus) {
    if (HasRoom(gpu, gpu_demand)) gpus |= bit;
    bit <<= 1;
  }
  return demand.allows_every_gpu() ? gpus : Allowed(node.gpus, demand, gpus);
}

void PreferLinked(const NodeView& node, const Demand& demand, Pick* pick) {
  if (node->groups == nullptr) return;
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    const GpuDemand& gpu_demand = demand.gpu_demands[n];
    if (!gpu_demand.whole() || gpu_demand.kind != kNoMigProfile) continue;
    uint64_t others = 0;
    for (size_t m = 0; m < demand.gpu_demands.size(); ++m) others |= m == n ? 0 : pick->masks[m];
    const uint64_t linked =
        node->groups->Choose(GpusWithRoom(node, gpu_demand, demand) & ~others, 0, gpu_demand.count);
    if (linked != 0) pick->masks[n] = linked;
  }
}

int BestLinkScore(const NodeView& node, const Demand& demand) {
  if (node->groups == nullptr) return 0;
  const GpuDemand* largest = nullptr;
  for (const GpuDemand& gpu_demand : demand.gpu_demands) {
    if (!IsGroup(gpu_demand)) continue;
    if (largest == nullptr || gpu_demand.count > largest->count) largest = &gpu_demand;
  }
  if (largest == nullptr) return 0;
  return node->groups->BestScore(GpusWithRoom(node, *largest, demand), largest->count);
}

bool GetsAllPairsLinked(const NodeView& node, const Demand& demand) {
  if (node->groups == nullptr) return false;
  if (demand.gpu_demands.size() == 1) {
    const GpuDemand& gpu_demand = demand.gpu_demands[0];
    return IsGroup(gpu_demand) && node->groups->ChoosesAllPairsLinked(
                                      GpusWithRoom(node, gpu_demand, demand), gpu_demand.count);
  }
  Pick pick;
  if (std::ranges::none_of(demand.gpu_demands, IsGroup) || !PickTightest(node, demand, &pick))
    return false;
  PreferLinked(node, demand, &pick);
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    if (IsGroup(demand.gpu_demands[n]) && !node->groups->AllPairsLinked(pick.masks[n]))
      return false;
  }
  return true;
}

void SlackAfter(const NodeView& node, const Demand& demand, const Pick& pick, int16_t* after) {
  for (size_t i = 0; i < node.gpus.size(); ++i) after[i] = node.gpus[i].slack;
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    for (uint64_t left = pick.masks[n]; left != 0; left &= left - 1) {
      const size_t i = std::countr_zero(left);
      after[i] -= static_cast<int16_t>(SlackTakenFrom(node.gpus[i], demand.gpu_demands[n]));
    }
  }
}

Status CheckPickShape(const NodeView& node, const Demand& demand, const Pick& pick) {
  for (size_t n = 0; n < kMaxGpuDemands; ++n) {
    const int wanted = n < demand.gpu_demands.size() ? demand.gpu_demands[n].count : 0;
    if (std::popcount(pick.masks[n]) != wanted) {
      return Error(Code::kInvalidArgument, "{} GPUs picked for GPU demand {}, which is for {}",
                   std::popcount(pick.masks[n]), n, wanted);
    }
    const size_t size = node.gpus.size();
    if (size < kMaxGpusPerNode && pick.masks[n] >> size != 0) {
      return Error(Code::kInvalidArgument, "GPU {} picked on a node with {} GPUs",
                   63 - std::countl_zero(pick.masks[n]), size);
    }
  }
  return {};
}

Status CheckPick(const NodeView& node, const Demand& demand, const Pick& pick) {
  RETURN_IF_ERROR(CheckPickShape(node, demand, pick));
  const auto missing = [](std::string_view resource, int64_t wanted, int64_t free) {
    return Error(Code::kFailedPrecondition, "{}: {} wanted, {} free", resource, wanted, free);
  };
  if (!node->present || !node->schedulable) {
    return Error(Code::kFailedPrecondition, "the node is not schedulable");
  }
  if (node->cpu_free < demand.cpu_milli) {
    return missing("thousandths of CPU", demand.cpu_milli, node->cpu_free);
  }
  if (node->memory_free < demand.memory.count()) {
    return missing("bytes of memory", demand.memory.count(), node->memory_free);
  }
  RemainingGpus remaining(node);
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    const GpuDemand& gpu_demand = demand.gpu_demands[n];
    for (uint64_t left = pick.masks[n]; left != 0; left &= left - 1) {
      const size_t i = std::countr_zero(left);
      const GpuState& gpu = remaining.gpus()[i];
      if (!Fits(gpu, gpu_demand, demand)) {
        return Error(Code::kFailedPrecondition,
                     "GPU {}: {} thousandths and {} bytes wanted, {} and {} free{}", i,
                     gpu_demand.milli.count(), gpu_demand.bytes.count(), gpu.free_milli,
                     gpu.free_bytes,
                     !gpu.healthy                     ? ", and it is unhealthy"
                     : !demand.AllowsModel(gpu.model) ? ", and it is of another model"
                     : !demand.AllowsGpu(gpu.id)      ? ", and the pod does not allow its UUID"
                                                      : "");
      }
      remaining.Take(i, gpu_demand);
    }
  }
  return {};
}

}  // namespace tessera::placement
