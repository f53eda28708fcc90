// SPDX-License-Identifier: Apache-2.0
#include "src/placement/chooser.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <utility>

#include "src/placement/greedy_choice.h"
#include "src/placement/partition_table.h"

namespace tessera::placement {
namespace {

// One bit mask for each NUMA node that is known.
std::vector<Mask> NumaMasks(const Topology& topology) {
  std::map<int, Mask> nodes;
  for (size_t i = 0; i < topology.ids.size(); ++i) {
    if (topology.numa_nodes[i]) nodes[*topology.numa_nodes[i]] |= Mask(1) << i;
  }
  std::vector<Mask> masks;
  for (const auto& [node, mask] : nodes) masks.push_back(mask);
  return masks;
}

// True where `a` holds the lowest position in which the two differ.
bool LowerPositions(Mask a, Mask b) {
  const Mask differ = a ^ b;
  return (a & differ & -differ) != 0;
}

}  // namespace

struct Chooser::Tables {
  explicit Tables(const Topology& topology)
      : partitions(static_cast<int>(topology.ids.size()),
                   [&](int a, int b) { return device::ScoreOf(topology.links.At(a, b)); }),
        numa(NumaMasks(topology)) {}

  Mask Choose(Mask available, Mask must_include, int size) const;

  // What decides where total and score are equal; computed only then. More is better.
  struct Merit {
    uint32_t future = 0;
    int numa_nodes = 0;    // negative, so that fewer is more
    int numa_whole = 0;
    auto operator<=>(const Merit&) const = default;
  };
  Merit MeritOf(Mask set, Mask rest) const;

  PartitionTable partitions;
  std::vector<Mask> numa;
};

Chooser::Tables::Merit Chooser::Tables::MeritOf(Mask set, Mask rest) const {
  Merit merit;
  merit.future = partitions.BestTotal(2, rest) + partitions.BestTotal(4, rest) +
                 partitions.BestTotal(8, rest);
  for (const Mask node : numa) {
    if ((set & node) != 0) --merit.numa_nodes;
    const int left = std::popcount(static_cast<unsigned>(rest & node));
    merit.numa_whole += left * left;
  }
  return merit;
}

Mask Chooser::Tables::Choose(Mask available, Mask must_include, int size) const {
  Mask best = 0;
  uint32_t best_total = 0, best_score = 0;
  Merit best_merit;
  bool merit_known = false;  // most sets lose by total or score, so merit is left until a tie
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

Topology Topology::Of(const device::NodeInventory& inventory) {
  Topology topology;
  for (const device::Gpu& gpu : inventory.gpus) {
    topology.ids.push_back(gpu.uuid);
    topology.numa_nodes.push_back(gpu.numa_node);
  }
  topology.links = inventory.links;
  return topology;
}

Chooser::Chooser(Topology topology) : topology_(std::move(topology)) {
  const size_t count = topology_.ids.size();
  TESSERA_CHECK(topology_.numa_nodes.size() == count && topology_.links.size() == count);
  for (size_t i = 0; i < count; ++i) positions_.emplace(topology_.ids[i], i);
  if (count <= kMaxExactGpus) tables_ = std::make_unique<const Tables>(topology_);
}

Chooser::~Chooser() = default;
Chooser::Chooser(Chooser&&) noexcept = default;
Chooser& Chooser::operator=(Chooser&&) noexcept = default;

Result<std::vector<size_t>> Chooser::PositionsOf(const std::vector<std::string>& ids) const {
  std::vector<size_t> positions;
  for (const std::string& id : ids) {
    const auto found = positions_.find(id);
    if (found == positions_.end()) return Error(Code::kNotFound, "unknown device: {}", id);
    positions.push_back(found->second);
  }
  std::ranges::sort(positions);
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

Result<std::vector<std::string>> Chooser::ChooseDevices(
    const std::vector<std::string>& available, const std::vector<std::string>& must_include,
    int size) const {
  ASSIGN_OR_RETURN(const std::vector<size_t> offered, PositionsOf(available));
  ASSIGN_OR_RETURN(const std::vector<size_t> required, PositionsOf(must_include));
  std::vector<std::string> ids;
  if (size <= 0 || offered.size() < static_cast<size_t>(size)) return ids;
  if (required.size() > static_cast<size_t>(size)) return ids;
  if (!std::ranges::includes(offered, required)) return ids;
  if (tables_ == nullptr) {
    for (const size_t i : ChooseGreedily(topology_, offered, required, size)) {
      ids.push_back(topology_.ids[i]);
    }
    return ids;
  }
  Mask offered_mask = 0, required_mask = 0;
  for (const size_t i : offered) offered_mask |= Mask(1) << i;
  for (const size_t i : required) required_mask |= Mask(1) << i;
  const Mask chosen = tables_->Choose(offered_mask, required_mask, size);
  for (size_t i = 0; i < topology_.ids.size(); ++i) {
    if ((chosen >> i & 1) != 0) ids.push_back(topology_.ids[i]);
  }
  return ids;
}

}  // namespace tessera::placement
