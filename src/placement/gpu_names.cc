// SPDX-License-Identifier: Apache-2.0
#include "src/placement/gpu_names.h"

#include <algorithm>

namespace tessera::placement {

GpuNames::Entries::value_type& GpuNames::Of(std::string_view uuid) {
  const auto at = entries_.find(uuid);
  return at != entries_.end() ? *at : *entries_.try_emplace(std::string(uuid)).first;
}

GpuNames::Name GpuNames::Add(std::string_view uuid, std::string_view parent_uuid) {
  if (uuid.empty()) return {};
  auto& [own_uuid, entry] = Of(uuid);
  if (entry.uses++ == 0) entry.own = next_++;
  Name name{.id = entry.own, .uuid = own_uuid};
  if (!parent_uuid.empty()) {
    auto& [known_uuid, parent] = Of(parent_uuid);
    parent.slices.push_back(name.id);
    name.parent_uuid = known_uuid;
  }
  return name;
}

void GpuNames::EraseUnused(Entries::iterator at) {
  if (at->second.uses == 0 && at->second.slices.empty()) entries_.erase(at);
}

void GpuNames::Drop(const Name& name) {
  if (name.uuid.empty()) return;
  const auto at = entries_.find(name.uuid);
  if (--at->second.uses == 0) at->second.own = kNoGpu;
  EraseUnused(at);
  if (name.parent_uuid.empty()) return;
  const auto parent = entries_.find(name.parent_uuid);
  std::vector<GpuId>& slices = parent->second.slices;
  slices.erase(std::find(slices.begin(), slices.end(), name.id));
  EraseUnused(parent);
}

std::vector<GpuId> GpuNames::Find(std::string_view uuid) const {
  const auto at = entries_.find(uuid);
  if (at == entries_.end()) return {};
  std::vector<GpuId> ids = at->second.slices;
  if (at->second.own != kNoGpu) ids.push_back(at->second.own);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace tessera::placement
