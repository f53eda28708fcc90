// SPDX-License-Identifier: Apache-2.0
// The inventory of a node in a cluster of thousands of nodes. Nodes of one type differ only in the
// UUIDs of their devices, so they share everything else.
//
// Threads: any number, on separate objects; one for a pool. Cost: 24 bytes for each device and one
// inventory for each type of node; a node with an unhealthy GPU is a type of its own.
#pragma once

#include <string_view>
#include <vector>

#include "src/base/shared_pool.h"
#include "src/base/uuid_text.h"
#include "src/device/gpu.h"

namespace tessera::device {

class SharedInventory {
 public:
  using Pool = SharedPool<NodeInventory>;

  // An inventory without GPUs.
  SharedInventory() = default;
  explicit SharedInventory(NodeInventory inventory);

  // The inventory with empty UUIDs. Valid as long as an inventory shares it.
  const NodeInventory& without_uuids() const { return *shared_; }
  // The UUID of each GPU in order, followed by the UUIDs of its slices.
  const std::vector<UuidText>& uuids() const { return uuids_; }
  // The whole inventory; copied in each call.
  NodeInventory Full() const;

  // A device in without_uuids().
  struct Device {
    const Gpu* gpu = nullptr;         // null if the node has no such device
    const MigSlice* slice = nullptr;  // null for a GPU
  };
  Device Find(std::string_view uuid) const;

  // Shares without_uuids() with the equal inventories of `pool`.
  void ShareIn(Pool* pool) { shared_ = pool->Get(shared_); }
  bool operator==(const SharedInventory&) const = default;

 private:
  SharedValue<NodeInventory> shared_;
  std::vector<UuidText> uuids_;
};

}  // namespace tessera::device
