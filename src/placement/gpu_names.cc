// SPDX-License-Identifier: Apache-2.0
#include "src/placement/gpu_names.h"

#include <algorithm>

namespace tessera::placement {

GpuNames::Name GpuNames::Add(std::string_view uuid, std::string_view parent_uuid) {
  Name name;
  if (uuid.empty()) return name;
  auto& numbered = *numbers_.try_emplace(UuidText(uuid)).first;
  if (numbered.second.uses++ == 0) numbered.second.id = next_id_++;
  name.number_ = &numbered;
  if (!parent_uuid.empty()) {
    auto& parent = *slices_.try_emplace(UuidText(parent_uuid)).first;
    parent.second.push_back(name.id());
    name.parent_ = &parent;
  }
  return name;
}

void GpuNames::Drop(const Name& name) {
  if (name.number_ == nullptr) return;
  if (name.parent_ != nullptr) {
    const auto parent = slices_.find(name.parent_->first);
    std::vector<GpuId>& slices = parent->second;
    slices.erase(std::find(slices.begin(), slices.end(), name.id()));
    if (slices.empty()) slices_.erase(parent);
  }
  const auto numbered = numbers_.find(name.number_->first);
  if (--numbered->second.uses == 0) numbers_.erase(numbered);
}

std::vector<GpuId> GpuNames::Find(std::string_view text) const {
  const UuidText uuid(text);
  std::vector<GpuId> ids;
  if (const auto slices = slices_.find(uuid); slices != slices_.end()) ids = slices->second;
  if (const auto own = numbers_.find(uuid); own != numbers_.end()) ids.push_back(own->second.id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace tessera::placement
