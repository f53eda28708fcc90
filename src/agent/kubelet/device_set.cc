// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/device_set.h"

#include <utility>

#include "src/base/strings.h"

namespace tessera::agent {
namespace {

// The kubelet's API documents this limit, although its code does not check it.
constexpr size_t kMaxIdLength = 63;

}  // namespace

DeviceSet::DeviceSet(std::shared_ptr<const device::NodeInventory> inventory,
                     device::MemoryUnit gpu_mem_unit)
    : inventory_(std::move(inventory)), shares_(*inventory_, gpu_mem_unit) {
  for (const device::Gpu& gpu : inventory_->gpus) {
    // The kubelet decodes with a protobuf that rejects the whole list for one invalid string.
    if (gpu.uuid.empty() || gpu.uuid.size() > kMaxIdLength || !IsValidUtf8(gpu.uuid)) {
      rejected_uuids_.push_back(HexEncode(gpu.uuid));
      continue;
    }
    offers_.push_back({gpu.uuid, gpu.health.ok() && gpu.minor.has_value(), gpu.numa_node});
  }
}

device::NodeInventory DeviceSet::PublishedInventory() const {
  device::NodeInventory published = *inventory_;
  // This note comes first, because the node's annotation has room only for the first notes.
  if (!shares_.note().empty()) published.notes.insert(published.notes.begin(), shares_.note());
  return published;
}

const device::Gpu* DeviceSet::Find(std::string_view id) const {
  for (const Offer& offer : offers_) {
    if (offer.id == id) return inventory_->Find(id);
  }
  return nullptr;
}

const placement::Chooser& DeviceSet::chooser() const {
  std::call_once(chooser_once_, [this] {
    chooser_ = std::make_unique<placement::Chooser>(placement::Topology::Of(*inventory_));
  });
  return *chooser_;
}

std::shared_ptr<const DeviceSet> DeviceSetHolder::Get() const {
  const std::lock_guard lock(mutex_);
  return set_;
}

void DeviceSetHolder::Set(std::shared_ptr<const DeviceSet> set) {
  const std::lock_guard lock(mutex_);
  set_.swap(set);
}

}  // namespace tessera::agent
