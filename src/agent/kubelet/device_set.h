// SPDX-License-Identifier: Apache-2.0
// What a node can offer at one moment: the GPUs of one inventory, whole and cut into units, ready
// for the questions of the kubelet. Not who holds them (offers.h). Immutable, so that the threads
// of gRPC read it without waiting for anybody.
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

  // GPUs whose UUID could not travel to the kubelet (not UTF-8, empty, too long) are left out and
  // named in `left_out`.
  explicit DeviceSet(std::shared_ptr<const device::NodeInventory> inventory,
                     device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB);

  const device::NodeInventory& inventory() const { return *inventory_; }
  // What the node shall say: the inventory, and what is worth knowing of how it is shared.
  device::NodeInventory PublishedInventory() const;
  // By position in the inventory.
  const std::vector<Offer>& offers() const { return offers_; }
  const std::vector<std::string>& left_out() const { return left_out_; }
  const SharePlan& shares() const { return shares_; }

  // The offered GPU of that id; null for an unknown one.
  const device::Gpu* Find(std::string_view id) const;
  // Tabulated at the first call, which takes tens of milliseconds on 16 GPUs. Any thread.
  const placement::Chooser& chooser() const;

 private:
  std::shared_ptr<const device::NodeInventory> inventory_;
  std::vector<Offer> offers_;
  std::vector<std::string> left_out_;
  SharePlan shares_;
  mutable std::once_flag chooser_made_;
  mutable std::unique_ptr<const placement::Chooser> chooser_;
};

// The latest set, for all threads. Null until the first inventory.
class DeviceSetHolder {
 public:
  std::shared_ptr<const DeviceSet> Get() const;
  void Set(std::shared_ptr<const DeviceSet> set);

 private:
  // Guards one pointer: written by the runner's thread, copied by those of gRPC and of the grants.
  mutable std::mutex mutex_;
  std::shared_ptr<const DeviceSet> set_;
};

}  // namespace tessera::agent
