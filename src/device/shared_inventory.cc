// SPDX-License-Identifier: Apache-2.0
#include "src/device/shared_inventory.h"

#include <string>
#include <utility>

namespace tessera::device {
namespace {

// Calls `visit` for the UUID of each GPU, followed by those of its slices.
template <typename Inventory, typename Visit>
void ForEachUuid(Inventory& inventory, const Visit& visit) {
  for (auto& gpu : inventory.gpus) {
    visit(gpu.uuid);
    if (!gpu.mig) continue;
    for (auto& slice : *gpu.mig) visit(slice.uuid);
  }
}

}  // namespace

SharedInventory::SharedInventory(NodeInventory inventory) {
  size_t count = 0;
  ForEachUuid(inventory, [&](const std::string&) { ++count; });
  uuids_.reserve(count);
  ForEachUuid(inventory, [&](std::string& uuid) {
    uuids_.emplace_back(uuid);
    uuid.clear();
  });
  shared_ = SharedValue(std::move(inventory));
}

NodeInventory SharedInventory::Full() const {
  NodeInventory full = *shared_;
  auto next = uuids_.begin();
  ForEachUuid(full, [&](std::string& uuid) { uuid = (next++)->str(); });
  return full;
}

SharedInventory::Device SharedInventory::Find(std::string_view text) const {
  const UuidText uuid(text);
  auto next = uuids_.begin();
  for (const Gpu& gpu : shared_->gpus) {
    if (*next++ == uuid) return {.gpu = &gpu};
    if (!gpu.mig) continue;
    for (const MigSlice& slice : *gpu.mig) {
      if (*next++ == uuid) return {.gpu = &gpu, .slice = &slice};
    }
  }
  return {};
}

}  // namespace tessera::device
