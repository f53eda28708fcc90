// SPDX-License-Identifier: Apache-2.0
// Picks GPUs of one node by a preference that the caller passes in. Private to this room; fit.h has
// the rules of what fits.
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

// The node's GPUs, less what earlier asks of the same pod have taken.
class RemainingGpus {
 public:
  explicit RemainingGpus(const NodeView& node) : size_(node.gpus.size()) {
    std::copy(node.gpus.begin(), node.gpus.end(), gpus_.begin());
  }
  std::span<const GpuState> gpus() const { return {gpus_.data(), size_}; }

  void Take(size_t i, const GpuAsk& ask) {
    GpuState& gpu = gpus_[i];
    gpu.slack -= static_cast<int16_t>(SlackOf(gpu, ask));
    gpu.free_milli -= static_cast<int32_t>(ask.milli.count());
    gpu.free_bytes -= ask.whole() ? gpu.free_bytes : ask.bytes.count();
    gpu.held_whole |= ask.whole();
    ++gpu.pods;
  }

 private:
  size_t size_;
  std::array<GpuState, kMaxGpusPerNode> gpus_;
};

// Whole asks first, then by size: the asks that are hardest to place come first.
inline std::array<uint8_t, kMaxAsks> HardestFirst(const Demand& demand) {
  std::array<uint8_t, kMaxAsks> order;
  std::iota(order.begin(), order.end(), uint8_t{0});
  std::stable_sort(order.begin(), order.begin() + demand.asks.size(), [&](int a, int b) {
    const GpuAsk &x = demand.asks[a], &y = demand.asks[b];
    return std::pair(x.milli, x.bytes) > std::pair(y.milli, y.bytes);
  });
  return order;
}

// The first `count` GPUs with room in the order of `before(a, b)`, the lowest positions among
// equals; 0 if fewer have room.
template <typename Before>
uint64_t FirstBy(std::span<const GpuState> gpus, const GpuAsk& ask, const Demand& demand,
                 const Before& before) {
  const GpuFit fits(ask, demand);
  uint64_t chosen = 0;
  for (int n = 0; n < ask.count; ++n) {
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

// Gives each ask the GPUs that `choose(gpus, ask)` returns (0 if there are too few), hardest asks
// first. Returns false, with `pick` undefined, where an ask gets none. Checks only GPUs, not the
// host.
template <typename Choose>
bool PickEach(const NodeView& node, const Demand& demand, Pick* pick, const Choose& choose) {
  *pick = {};
  if (demand.asks.size() == 1) {
    pick->masks[0] = choose(node.gpus, demand.asks[0]);
    return pick->masks[0] != 0;
  }
  if (demand.asks.empty()) return true;
  RemainingGpus remaining(node);
  const auto order = HardestFirst(demand);
  for (size_t n = 0; n < demand.asks.size(); ++n) {
    const GpuAsk& ask = demand.asks[order[n]];
    const uint64_t mask = choose(remaining.gpus(), ask);
    if (mask == 0) return false;
    pick->masks[order[n]] = mask;
    for (uint64_t left = mask; left != 0; left &= left - 1)
      remaining.Take(std::countr_zero(left), ask);
  }
  return true;
}

// Picks with `choose`, or like PickTightest where only PickTightest finds room for all asks, so
// that every policy accepts exactly the demands that fit. Returns false where the demand does not
// fit.
template <typename Choose>
bool PickOrTightest(const NodeView& node, const Demand& demand, Pick* pick, const Choose& choose) {
  Pick tightest;
  if (!PickTightest(node, demand, &tightest)) return false;
  if (!PickEach(node, demand, pick, choose)) *pick = tightest;
  return true;
}

}  // namespace tessera::placement
