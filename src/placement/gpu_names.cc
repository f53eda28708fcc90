// SPDX-License-Identifier: Apache-2.0
#include "src/placement/gpu_names.h"

#include <algorithm>

namespace tessera::placement {

GpuNames::Entry& GpuNames::Of(std::string_view uuid) {
  const auto at = entries_.find(uuid);
  return at != entries_.end() ? at->second : entries_[std::string(uuid)];
}

GpuId GpuNames::Add(std::string_view uuid, std::string_view parent_uuid) {
  if (uuid.empty()) return kNoGpu;
  Entry& entry = Of(uuid);
  if (entry.uses++ == 0) entry.own = next_++;
  const GpuId id = entry.own;
  if (!parent_uuid.empty()) Of(parent_uuid).slices.push_back(id);
  return id;
}

void GpuNames::EraseUnused(Entries::iterator at) {
  if (at->second.uses == 0 && at->second.slices.empty()) entries_.erase(at);
}

void GpuNames::Drop(std::string_view uuid, std::string_view parent_uuid) {
  if (uuid.empty()) return;
  const auto at = entries_.find(uuid);
  const GpuId id = at->second.own;
  if (--at->second.uses == 0) at->second.own = kNoGpu;
  EraseUnused(at);
  if (parent_uuid.empty()) return;
  const auto parent = entries_.find(parent_uuid);
  std::vector<GpuId>& slices = parent->second.slices;
  slices.erase(std::find(slices.begin(), slices.end(), id));
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
