// SPDX-License-Identifier: Apache-2.0
#include "src/placement/chooser.h"

#include <algorithm>
#include <utility>

#include "src/placement/greedy_choice.h"

namespace tessera::placement {

Topology Topology::Of(const device::NodeInventory& inventory) {
  Topology topology{NodeLinks::Of(inventory), {}};
  for (const device::Gpu& gpu : inventory.gpus) topology.ids.push_back(gpu.uuid);
  return topology;
}

Chooser::Chooser(Topology topology) : topology_(std::move(topology)) {
  const size_t count = topology_.ids.size();
  TESSERA_CHECK(topology_.numa_nodes.size() == count && topology_.links.size() == count);
  for (size_t i = 0; i < count; ++i) positions_.emplace(topology_.ids[i], i);
  if (count <= kMaxLinkedGpus) groups_ = std::make_unique<const LinkedGroups>(topology_);
}

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
  if (groups_ == nullptr) {
    for (const size_t i : ChooseGreedily(topology_, offered, required, size)) {
      ids.push_back(topology_.ids[i]);
    }
    return ids;
  }
  uint64_t offered_mask = 0, required_mask = 0;
  for (const size_t i : offered) offered_mask |= uint64_t{1} << i;
  for (const size_t i : required) required_mask |= uint64_t{1} << i;
  const uint64_t chosen = groups_->Choose(offered_mask, required_mask, size);
  for (size_t i = 0; i < topology_.ids.size(); ++i) {
    if ((chosen >> i & 1) != 0) ids.push_back(topology_.ids[i]);
  }
  return ids;
}

}  // namespace tessera::placement
