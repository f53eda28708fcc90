// SPDX-License-Identifier: Apache-2.0
#include "src/placement/linked_groups.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <map>
#include <utility>

#include "src/base/status.h"
#include "src/placement/greedy_choice.h"
#include "src/placement/partition_table.h"

namespace tessera::placement {
namespace {

// One bit mask for each known NUMA node.
std::vector<Mask> NumaMasks(const NodeLinks& links) {
  std::map<int, Mask> nodes;
  for (size_t i = 0; i < links.size(); ++i) {
    if (links.numa_nodes[i]) nodes[*links.numa_nodes[i]] |= Mask(1) << i;
  }
  std::vector<Mask> masks;
  for (const auto& [node, mask] : nodes) masks.push_back(mask);
  return masks;
}

// Whether the lowest position in which `a` and `b` differ is in `a`.
bool LowerPositions(Mask a, Mask b) {
  const Mask differ = a ^ b;
  return (a & differ & -differ) != 0;
}

std::vector<size_t> PositionsOf(uint64_t mask) {
  std::vector<size_t> positions;
  for (; mask != 0; mask &= mask - 1) positions.push_back(std::countr_zero(mask));
  return positions;
}

uint64_t MaskOf(const std::vector<size_t>& positions) {
  uint64_t mask = 0;
  for (const size_t position : positions) mask |= uint64_t{1} << position;
  return mask;
}

size_t HashOf(const NodeLinks& links) {
  size_t hash = links.size();
  const auto mix = [&hash](size_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  };
  for (size_t a = 0; a < links.size(); ++a) {
    mix(links.numa_nodes[a] ? static_cast<size_t>(*links.numa_nodes[a]) + 1 : 0);
    for (size_t b = 0; b < a; ++b) {
      const device::Link& link = links.links.At(a, b);
      mix(static_cast<size_t>(link.pcie) << 16 | link.nvlinks << 1 | link.via_nvswitch);
    }
  }
  return hash;
}

}  // namespace

struct LinkedGroups::Tables {
  explicit Tables(const NodeLinks& links)
      : partitions(static_cast<int>(links.size()),
                   [&](int a, int b) { return device::ScoreOf(links.links.At(a, b)); }),
        numa(NumaMasks(links)) {}

  Mask Choose(Mask available, Mask must_include, int size) const;

  // Decides between sets with equal total and score, and is computed only for them. Larger is
  // better.
  struct Merit {
    uint32_t future = 0;
    int numa_nodes = 0;  // negative number of NUMA nodes in the set, because fewer are better
    int rest_concentration = 0;  // sum of (remaining GPUs)² over NUMA nodes
    auto operator<=>(const Merit&) const = default;
  };
  Merit MeritOf(Mask set, Mask rest) const;

  PartitionTable partitions;
  std::vector<Mask> numa;
};

LinkedGroups::Tables::Merit LinkedGroups::Tables::MeritOf(Mask set, Mask rest) const {
  Merit merit;
  merit.future =
      partitions.BestTotal(2, rest) + partitions.BestTotal(4, rest) + partitions.BestTotal(8, rest);
  for (const Mask node : numa) {
    if ((set & node) != 0) --merit.numa_nodes;
    const int left = std::popcount(static_cast<unsigned>(rest & node));
    merit.rest_concentration += left * left;
  }
  return merit;
}

Mask LinkedGroups::Tables::Choose(Mask available, Mask must_include, int size) const {
  Mask best = 0;
  uint32_t best_total = 0, best_score = 0;
  Merit best_merit;
  // The merit is computed only at a tie, because total or score decide between most sets.
  bool merit_known = false;
  for (const Mask set : partitions.SetsOf(size)) {
    if ((set & ~available) != 0 || (set & must_include) != must_include) continue;
    const uint32_t score = partitions.ScoreOf(set);
    const uint32_t total = score + partitions.BestTotal(size, available ^ set);
    if (best == 0 || total > best_total || (total == best_total && score > best_score)) {
      best = set;
      best_total = total;
      best_score = score;
      merit_known = false;
      continue;
    }
    if (total < best_total || score < best_score) continue;
    if (!merit_known) best_merit = MeritOf(best, available ^ best);
    merit_known = true;
    const Merit merit = MeritOf(set, available ^ set);
    if (merit < best_merit || (merit == best_merit && !LowerPositions(set, best))) continue;
    best = set;
    best_merit = merit;
  }
  return best;
}

NodeLinks NodeLinks::Of(const device::NodeInventory& inventory) {
  NodeLinks links;
  for (const device::Gpu& gpu : inventory.gpus) links.numa_nodes.push_back(gpu.numa_node);
  links.links = inventory.links;
  return links;
}

LinkedGroups::LinkedGroups(NodeLinks links, size_t max_exact) : links_(std::move(links)) {
  TESSERA_CHECK(links_.size() <= kMaxLinkedGpus && links_.links.size() == links_.size());
  nvlink_peers_.resize(size());
  for (size_t a = 0; a < size(); ++a) {
    for (size_t b = 0; b < size(); ++b) {
      if (a != b && links_.links.At(a, b).nvlinks > 0) nvlink_peers_[a] |= uint64_t{1} << b;
    }
  }
  if (links_.size() <= std::min(max_exact, kMaxExactGpus)) {
    tables_ = std::make_unique<const Tables>(links_);
  }
}

LinkedGroups::~LinkedGroups() = default;

uint64_t LinkedGroups::AllPositions() const {
  return size() == kMaxLinkedGpus ? ~uint64_t{0} : (uint64_t{1} << size()) - 1;
}

uint64_t LinkedGroups::Choose(uint64_t available, uint64_t must_include, int size) const {
  available &= AllPositions();
  if (size <= 0 || std::popcount(available) < size || std::popcount(must_include) > size ||
      (must_include & ~available) != 0) {
    return 0;
  }
  if (tables_ == nullptr) {
    return MaskOf(ChooseGreedily(links_, PositionsOf(available), PositionsOf(must_include), size));
  }
  return tables_->Choose(static_cast<Mask>(available), static_cast<Mask>(must_include), size);
}

int LinkedGroups::ScoreOf(uint64_t set) const {
  set &= AllPositions();
  if (tables_ != nullptr) {
    return tables_->partitions.ScoreOf(static_cast<Mask>(set)) * device::kLinkScoreUnit;
  }
  int sum = 0;
  for (; set != 0; set &= set - 1) {
    for (uint64_t others = set & (set - 1); others != 0; others &= others - 1) {
      sum += device::ScoreOf(links_.links.At(std::countr_zero(set), std::countr_zero(others)));
    }
  }
  return sum;
}

int LinkedGroups::BestScore(uint64_t available, int size) const {
  available &= AllPositions();
  if (tables_ == nullptr) return ScoreOf(Choose(available, 0, size));
  if (size <= 0 || std::popcount(available) < size) return 0;
  Score best = 0;
  for (const Mask set : tables_->partitions.SetsOf(size)) {
    if ((set & ~available) == 0) best = std::max(best, tables_->partitions.ScoreOf(set));
  }
  return best * device::kLinkScoreUnit;
}

bool LinkedGroups::AllPairsLinked(uint64_t set) const {
  if (std::popcount(set) < 2 || (set & ~AllPositions()) != 0) return false;
  for (uint64_t left = set; left != 0; left &= left - 1) {
    const uint64_t others = set & ~(left & -left);
    if ((others & ~nvlink_peers_[std::countr_zero(left)]) != 0) return false;
  }
  return true;
}

bool LinkedGroups::EachHasPartner(uint64_t set) const {
  if (set == 0 || (set & ~AllPositions()) != 0) return false;
  for (uint64_t left = set; left != 0; left &= left - 1) {
    if ((nvlink_peers_[std::countr_zero(left)] & set) == 0) return false;
  }
  return true;
}

bool LinkedGroups::ChoosesAllPairsLinked(uint64_t available, int size) const {
  available &= AllPositions();
  if (size < 2 || std::popcount(available) < size) return false;
  if (AllPairsLinked(available)) return true;
  const auto has_enough = [&](size_t i) {
    return (available >> i & 1) != 0 && std::popcount(nvlink_peers_[i] & available) + 1 >= size;
  };
  int candidates = 0;
  for (size_t i = 0; i < nvlink_peers_.size(); ++i) candidates += has_enough(i);
  return candidates >= size && AllPairsLinked(Choose(available, 0, size));
}

std::shared_ptr<const LinkedGroups> LinkedGroupsCache::Get(const NodeLinks& links) {
  const size_t hash = HashOf(links);
  const auto [first, last] = groups_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (at->second->links() == links) return at->second;
  }
  if (groups_.size() >= kMaxTopologies) {
    std::erase_if(groups_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  if (groups_.size() >= kMaxTopologies) return std::make_shared<const LinkedGroups>(links, 0);
  return groups_.emplace(hash, std::make_shared<const LinkedGroups>(links))->second;
}

}  // namespace tessera::placement
