// SPDX-License-Identifier: Apache-2.0
// Picks GPUs of one node by a preference that the caller passes in. Included only in src/placement;
// fit.h has the rules of what fits.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "src/placement/cluster.h"
#include "src/placement/demand.h"
#include "src/placement/fit.h"

namespace tessera::placement {

// The node's GPUs, without the parts that earlier GPU demands of the same pod have taken.
class RemainingGpus {
 public:
  explicit RemainingGpus(const NodeView& node) : size_(node.gpus.size()) {
    std::copy(node.gpus.begin(), node.gpus.end(), gpus_.begin());
  }
  std::span<const GpuState> gpus() const { return {gpus_.data(), size_}; }

  void Take(size_t i, const GpuDemand& gpu_demand) {
    GpuState& gpu = gpus_[i];
    gpu.slack -= static_cast<int16_t>(SlackTakenFrom(gpu, gpu_demand));
    gpu.free_milli -= static_cast<int32_t>(gpu_demand.milli.count());
    gpu.free_bytes -= gpu_demand.whole() ? gpu.free_bytes : gpu_demand.bytes.count();
    gpu.held_whole |= gpu_demand.whole();
    ++gpu.pods;
  }

 private:
  size_t size_;
  std::array<GpuState, kMaxGpusPerNode> gpus_;
};

// Order of placing GPU demands, hardest first: whole GPUs, then by size.
inline std::array<uint8_t, kMaxGpuDemands> HardestFirst(const Demand& demand) {
  std::array<uint8_t, kMaxGpuDemands> order;
  std::iota(order.begin(), order.end(), uint8_t{0});
  std::stable_sort(order.begin(), order.begin() + demand.gpu_demands.size(), [&](int a, int b) {
    const GpuDemand &x = demand.gpu_demands[a], &y = demand.gpu_demands[b];
    return std::pair(x.milli, x.bytes) > std::pair(y.milli, y.bytes);
  });
  return order;
}

// Returns the first `count` GPUs with room in the order of `before(a, b)`; 0 if fewer GPUs have
// room. Among equal GPUs the lowest positions come first.
template <typename Before>
uint64_t FirstBy(std::span<const GpuState> gpus, const GpuDemand& gpu_demand, const Demand& demand,
                 const Before& before) {
  const GpuFit fits(gpu_demand, demand);
  uint64_t chosen = 0;
  for (int n = 0; n < gpu_demand.count; ++n) {
    int best = -1;
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (chosen >> i & 1 || !fits(gpus[i])) continue;
      if (best < 0 || before(gpus[i], gpus[best])) best = static_cast<int>(i);
    }
    if (best < 0) return 0;
    chosen |= uint64_t{1} << best;
  }
  return chosen;
}

// Gives each GPU demand, hardest first, the GPUs that `choose(gpus, gpu_demand)` returns (0 if
// there are too few). Returns false, with `pick` undefined, if a demand gets none. Does not check
// the host's resources.
template <typename Choose>
bool PickEach(const NodeView& node, const Demand& demand, Pick* pick, const Choose& choose) {
  *pick = {};
  if (demand.gpu_demands.size() == 1) {
    pick->masks[0] = choose(node.gpus, demand.gpu_demands[0]);
    return pick->masks[0] != 0;
  }
  if (demand.gpu_demands.empty()) return true;
  RemainingGpus remaining(node);
  const auto order = HardestFirst(demand);
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    const GpuDemand& gpu_demand = demand.gpu_demands[order[n]];
    const uint64_t mask = choose(remaining.gpus(), gpu_demand);
    if (mask == 0) return false;
    pick->masks[order[n]] = mask;
    for (uint64_t left = mask; left != 0; left &= left - 1)
      remaining.Take(std::countr_zero(left), gpu_demand);
  }
  return true;
}

// Picks with `choose`. If `choose` finds no room for all GPU demands and PickTightest does, takes
// the result of PickTightest, so that every policy accepts exactly the demands that fit. Returns
// false if the demand does not fit.
template <typename Choose>
bool PickOrTightest(const NodeView& node, const Demand& demand, Pick* pick, const Choose& choose) {
  Pick tightest;
  if (!PickTightest(node, demand, &tightest)) return false;
  if (!PickEach(node, demand, pick, choose)) *pick = tightest;
  return true;
}

}  // namespace tessera::placement
