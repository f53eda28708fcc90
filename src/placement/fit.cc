// SPDX-License-Identifier: Apache-2.0
#include "src/placement/fit.h"

#include <bit>

#include "src/placement/linked_groups.h"
#include "src/placement/pick_by.h"

namespace tessera::placement {
namespace {

// Like FirstBy with the least slack. All idle GPUs have equal slack, so the first ones do for a
// whole ask.
uint64_t Tightest(std::span<const GpuState> gpus, const GpuAsk& ask, const Demand& demand) {
  if (!ask.whole()) {
    return FirstBy(gpus, ask, demand,
                   [](const GpuState& a, const GpuState& b) { return a.slack < b.slack; });
  }
  const GpuFit fits(ask, demand);
  uint64_t chosen = 0;
  int found = 0;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!fits(gpus[i])) continue;
    chosen |= uint64_t{1} << i;
    if (++found == ask.count) return chosen;
  }
  return 0;
}

// Whether links between the GPUs of the ask matter.
bool IsGroup(const GpuAsk& ask) { return ask.whole() && ask.kind == kWholeDevice && ask.count > 1; }

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
  return PickEach(node, demand, pick, [&](std::span<const GpuState> gpus, const GpuAsk& ask) {
    return Tightest(gpus, ask, demand);
  });
}

bool Fits(const NodeView& node, const Demand& demand) {
  if (!HostFits(*node.state, demand)) return false;
  if (demand.asks.empty()) return true;
  if (demand.asks.size() > 1) {
    Pick pick;
    return PickTightest(node, demand, &pick);
  }
  const GpuAsk& ask = demand.asks[0];
  const GpuFit fits(ask, demand);
  int found = 0;
  for (const GpuState& gpu : node.gpus) {
    if (fits(gpu) && ++found == ask.count) return true;
  }
  return false;
}

uint64_t RoomFor(const NodeView& node, const GpuAsk& ask, const Demand& demand) {
  uint64_t room = 0;
  uint64_t bit = 1;
  for (const GpuState& gpu : node.gpus) {
    if (HasRoom(gpu, ask)) room |= bit;
    bit <<= 1;
  }
  return demand.allows_any() ? room : Allowed(node.gpus, demand, room);
}

void PreferLinked(const NodeView& node, const Demand& demand, Pick* pick) {
  if (node->groups == nullptr) return;
  for (size_t n = 0; n < demand.asks.size(); ++n) {
    const GpuAsk& ask = demand.asks[n];
    if (!ask.whole() || ask.kind != kWholeDevice) continue;
    uint64_t others = 0;
    for (size_t m = 0; m < demand.asks.size(); ++m) others |= m == n ? 0 : pick->masks[m];
    const uint64_t linked =
        node->groups->Choose(RoomFor(node, ask, demand) & ~others, 0, ask.count);
    if (linked != 0) pick->masks[n] = linked;
  }
}

int LinkPoints(const NodeView& node, const Demand& demand) {
  if (node->groups == nullptr) return 0;
  const GpuAsk* largest = nullptr;
  for (const GpuAsk& ask : demand.asks) {
    if (!IsGroup(ask)) continue;
    if (largest == nullptr || ask.count > largest->count) largest = &ask;
  }
  if (largest == nullptr) return 0;
  return node->groups->BestScore(RoomFor(node, *largest, demand), largest->count);
}

bool GetsJoined(const NodeView& node, const Demand& demand) {
  if (node->groups == nullptr) return false;
  if (demand.asks.size() == 1) {
    const GpuAsk& ask = demand.asks[0];
    return IsGroup(ask) && node->groups->ChoosesJoined(RoomFor(node, ask, demand), ask.count);
  }
  Pick pick;
  if (std::ranges::none_of(demand.asks, IsGroup) || !PickTightest(node, demand, &pick))
    return false;
  PreferLinked(node, demand, &pick);
  for (size_t n = 0; n < demand.asks.size(); ++n) {
    if (IsGroup(demand.asks[n]) && !node->groups->Joined(pick.masks[n])) return false;
  }
  return true;
}

void SlackAfter(const NodeView& node, const Demand& demand, const Pick& pick, int16_t* after) {
  for (size_t i = 0; i < node.gpus.size(); ++i) after[i] = node.gpus[i].slack;
  for (size_t n = 0; n < demand.asks.size(); ++n) {
    for (uint64_t left = pick.masks[n]; left != 0; left &= left - 1) {
      const size_t i = std::countr_zero(left);
      after[i] -= static_cast<int16_t>(SlackOf(node.gpus[i], demand.asks[n]));
    }
  }
}

Status CheckPickShape(const NodeView& node, const Demand& demand, const Pick& pick) {
  for (size_t n = 0; n < kMaxAsks; ++n) {
    const int wanted = n < demand.asks.size() ? demand.asks[n].count : 0;
    if (std::popcount(pick.masks[n]) != wanted) {
      return Error(Code::kInvalidArgument, "{} GPUs picked where ask {} is for {}",
                   std::popcount(pick.masks[n]), n, wanted);
    }
    const size_t size = node.gpus.size();
    if (size < kMaxGpusPerNode && pick.masks[n] >> size != 0) {
      return Error(Code::kInvalidArgument, "GPU {} picked on a node with {}",
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
    return Error(Code::kFailedPrecondition, "the node takes no pods");
  }
  if (node->cpu_free < demand.cpu_milli) {
    return missing("thousandths of CPU", demand.cpu_milli, node->cpu_free);
  }
  if (node->memory_free < demand.memory.count()) {
    return missing("bytes of memory", demand.memory.count(), node->memory_free);
  }
  RemainingGpus remaining(node);
  for (size_t n = 0; n < demand.asks.size(); ++n) {
    const GpuAsk& ask = demand.asks[n];
    for (uint64_t left = pick.masks[n]; left != 0; left &= left - 1) {
      const size_t i = std::countr_zero(left);
      const GpuState& gpu = remaining.gpus()[i];
      if (!Fits(gpu, ask, demand)) {
        return Error(Code::kFailedPrecondition,
                     "GPU {}: {} thousandths and {} bytes wanted, {} and {} free{}", i,
                     ask.milli.count(), ask.bytes.count(), gpu.free_milli, gpu.free_bytes,
                     !gpu.healthy                     ? ", and it is unhealthy"
                     : !demand.AllowsModel(gpu.model) ? ", and it is of another model"
                     : !demand.AllowsGpu(gpu.id)      ? ", and the pod does not allow its UUID"
                                                      : "");
      }
      remaining.Take(i, ask);
    }
  }
  return {};
}

}  // namespace tessera::placement
