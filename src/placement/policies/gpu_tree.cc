// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/gpu_tree.h"

#include <algorithm>
#include <bit>
#include <compare>

#include "src/placement/linked_groups.h"

namespace tessera::placement {
namespace {

// GPUs on one board count like GPUs on one switch.
int LevelOf(const device::Link& link) {
  switch (link.pcie) {
    case device::PcieLevel::kSameBoard:
    case device::PcieLevel::kSingleSwitch:
      return 10;
    case device::PcieLevel::kMultiSwitch:
      return 20;
    case device::PcieLevel::kHostBridge:
      return 30;
    case device::PcieLevel::kNode:
      return 40;
    case device::PcieLevel::kSystem:
      return 50;
    case device::PcieLevel::kUnknown:
      break;
  }
  return 0;
}

// The `count` lowest bits of `mask`. REQUIRES: it has at least `count` bits.
uint64_t LowestBits(uint64_t mask, int count) {
  uint64_t chosen = 0;
  for (; count > 0; --count, mask &= mask - 1) chosen |= mask & -mask;
  return chosen;
}

}  // namespace

// Orders groups by their number of available GPUs, then by free memory, pods and position.
struct GpuTree::GroupRank {
  int available = 0;
  int64_t free_bytes = 0;
  int pods = 0;
  int position = 0;
  auto operator<=>(const GroupRank&) const = default;
};

GpuTree::GroupRank GpuTree::RankOf(const PcieGroup& group, uint64_t available,
                                   std::span<const GpuState> gpus) {
  GroupRank rank{.available = std::popcount(group.members & available),
                 .position = std::countr_zero(group.members)};
  for (uint64_t left = group.members; left != 0; left &= left - 1) {
    const GpuState& gpu = gpus[std::countr_zero(left)];
    rank.free_bytes += gpu.free_bytes;
    rank.pods += gpu.pods;
  }
  return rank;
}

GpuTree::GpuTree(size_t size, const NodeLinks* links)
    : all_(size == 0 ? 0 : ~uint64_t{0} >> (64 - size)) {
  if (links != nullptr) BuildGroups(*links);
  std::ranges::stable_sort(groups_, {}, &PcieGroup::level);
}

// A pair of GPUs joins the first group of its level that contains one of them.
void GpuTree::BuildGroups(const NodeLinks& links) {
  for (size_t a = 0; a < links.size(); ++a) {
    for (size_t b = a + 1; b < links.size(); ++b) {
      const int level = LevelOf(links.links.At(a, b));
      if (level == 0) continue;
      const uint64_t pair = uint64_t{1} << a | uint64_t{1} << b;
      const auto at = std::ranges::find_if(groups_, [&](const PcieGroup& group) {
        return group.level == level && (group.members & pair) != 0;
      });
      if (at != groups_.end()) {
        at->members |= pair;
      } else {
        groups_.push_back({pair, level});
      }
    }
  }
}

// Descends from the whole node. In each step takes the child group that has enough available GPUs
// but the fewest of all such groups. Children are the groups directly below, with no other group in
// between.
uint64_t GpuTree::PickFragment(uint64_t available, int count,
                               std::span<const GpuState> gpus) const {
  if (count < 1 || std::popcount(available) < count) return 0;
  const auto below = [](uint64_t inner, uint64_t outer) {
    return inner != outer && (inner & ~outer) == 0;
  };
  uint64_t inside = all_;
  for (const PcieGroup* best = nullptr;; inside = best->members, best = nullptr) {
    GroupRank best_rank;
    for (const PcieGroup& group : groups_) {
      const bool child =
          below(group.members, inside) &&
          std::ranges::none_of(groups_, [&](const PcieGroup& other) {
            return below(group.members, other.members) && below(other.members, inside);
          });
      const GroupRank rank = RankOf(group, available, gpus);
      if (!child || rank.available < count || (best != nullptr && best_rank <= rank)) continue;
      best = &group;
      best_rank = rank;
    }
    if (best == nullptr) return LowestBits(available & inside, count);
  }
}

// The nearest group with enough GPUs; among equally near groups the one with the fewest available.
uint64_t GpuTree::PickLinked(uint64_t available, int count, std::span<const GpuState> gpus) const {
  if (count < 1 || std::popcount(available) < count) return 0;
  const PcieGroup* best = nullptr;
  GroupRank best_rank;
  for (const PcieGroup& group : groups_) {
    if (best != nullptr && group.level > best->level) break;
    const GroupRank rank = RankOf(group, available, gpus);
    if (rank.available < count || (best != nullptr && best_rank <= rank)) continue;
    best = &group;
    best_rank = rank;
  }
  return LowestBits(best == nullptr ? available : available & best->members, count);
}

}  // namespace tessera::placement
