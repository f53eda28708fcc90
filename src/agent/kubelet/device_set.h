// SPDX-License-Identifier: Apache-2.0
// What a node offers at one moment: the GPUs of one inventory, whole and cut into units, ready for
// the kubelet's calls. agent/grants/offers.h withdraws the GPUs that containers hold. Immutable, so
// gRPC's threads read it without waiting.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/agent/kubelet/share_units.h"
#include "src/base/status.h"
#include "src/device/gpu.h"
#include "src/placement/chooser.h"

namespace tessera::agent {

class DeviceSet {
 public:
  struct Offer {
    std::string id;
    bool healthy = false;
    std::optional<int> numa_node;
    bool operator==(const Offer&) const = default;
  };

  // A GPU whose UUID cannot be a device ID (not UTF-8, empty, too long) is not offered;
  // rejected_uuids() has it in hexadecimal.
  explicit DeviceSet(std::shared_ptr<const device::NodeInventory> inventory,
                     device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB);

  const device::NodeInventory& inventory() const { return *inventory_; }
  // The inventory as the node publishes it, with a note on how GPUs are shared.
  device::NodeInventory PublishedInventory() const;
  // In the order of the inventory.
  const std::vector<Offer>& offers() const { return offers_; }
  const std::vector<std::string>& rejected_uuids() const { return rejected_uuids_; }
  const SharePlan& shares() const { return shares_; }

  // The offered GPU with this ID; null for an unknown ID.
  const device::Gpu* Find(std::string_view id) const;
  // The first call builds a table, which takes tens of milliseconds on 16 GPUs. Any thread.
  const placement::Chooser& chooser() const;

 private:
  std::shared_ptr<const device::NodeInventory> inventory_;
  std::vector<Offer> offers_;
  std::vector<std::string> rejected_uuids_;
  SharePlan shares_;
  mutable std::once_flag chooser_once_;
  mutable std::unique_ptr<const placement::Chooser> chooser_;
};

// The latest set, for all threads. Null until the first inventory.
class DeviceSetHolder {
 public:
  std::shared_ptr<const DeviceSet> Get() const;
  void Set(std::shared_ptr<const DeviceSet> set);

 private:
  // Guards one pointer: the runner's thread writes it, gRPC's and the grants' threads copy it.
  mutable std::mutex mutex_;
  std::shared_ptr<const DeviceSet> set_;
};

}  // namespace tessera::agent
