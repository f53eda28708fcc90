// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/gpu_tree.h"

#include <algorithm>
#include <bit>
#include <compare>

#include "src/placement/linked_groups.h"

namespace tessera::placement {
namespace {

// One board counts as one switch.
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

// The `count` lowest bits; REQUIRES: there are so many.
uint64_t Lowest(uint64_t mask, int count) {
  uint64_t chosen = 0;
  for (; count > 0; --count, mask &= mask - 1) chosen |= mask & -mask;
  return chosen;
}

}  // namespace

// Groups are compared by how many GPUs they have available, then by free memory, pods and position.
struct GpuTree::Rank {
  int available = 0;
  int64_t free_bytes = 0;
  int pods = 0;
  int position = 0;
  auto operator<=>(const Rank&) const = default;
};

GpuTree::Rank GpuTree::RankOf(const Group& group, uint64_t available,
                              std::span<const GpuState> gpus) {
  Rank rank{.available = std::popcount(group.members & available),
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
  if (links != nullptr) Connect(*links);
  std::ranges::stable_sort(groups_, {}, &Group::level);
}

// A pair joins the first group of its level that has one of the two.
void GpuTree::Connect(const NodeLinks& links) {
  for (size_t a = 0; a < links.size(); ++a) {
    for (size_t b = a + 1; b < links.size(); ++b) {
      const int level = LevelOf(links.links.At(a, b));
      if (level == 0) continue;
      const uint64_t pair = uint64_t{1} << a | uint64_t{1} << b;
      const auto at = std::ranges::find_if(groups_, [&](const Group& group) {
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

// From the whole node inwards, always into the group with the fewest GPUs available that still has
// enough. The groups right below where we are: those that no other lies between.
uint64_t GpuTree::Fragment(uint64_t available, int count, std::span<const GpuState> gpus) const {
  if (count < 1 || std::popcount(available) < count) return 0;
  const auto below = [](uint64_t inner, uint64_t outer) {
    return inner != outer && (inner & ~outer) == 0;
  };
  uint64_t inside = all_;
  for (const Group* best = nullptr;; inside = best->members, best = nullptr) {
    Rank best_rank;
    for (const Group& group : groups_) {
      const bool child =
          below(group.members, inside) && std::ranges::none_of(groups_, [&](const Group& other) {
            return below(group.members, other.members) && below(other.members, inside);
          });
      const Rank rank = RankOf(group, available, gpus);
      if (!child || rank.available < count || (best != nullptr && best_rank <= rank)) continue;
      best = &group;
      best_rank = rank;
    }
    if (best == nullptr) return Lowest(available & inside, count);
  }
}

// The nearest group with enough GPUs; among equally near ones that with the fewest available.
uint64_t GpuTree::Link(uint64_t available, int count, std::span<const GpuState> gpus) const {
  if (count < 1 || std::popcount(available) < count) return 0;
  const Group* best = nullptr;
  Rank best_rank;
  for (const Group& group : groups_) {
    if (best != nullptr && group.level > best->level) break;
    const Rank rank = RankOf(group, available, gpus);
    if (rank.available < count || (best != nullptr && best_rank <= rank)) continue;
    best = &group;
    best_rank = rank;
  }
  return Lowest(best == nullptr ? available : available & best->members, count);
}

}  // namespace tessera::placement
