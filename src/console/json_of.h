// SPDX-License-Identifier: Apache-2.0
// Nodes and pods of a ledger as the JSON that the page reads. Amounts are bytes and thousandths of
// a GPU. Pure; threads as the ledger. docs/tasks/console.md describes the fields.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/device/dialects.h"
#include "src/formats/json.h"
#include "src/ledger/ledger.h"

namespace tessera::console {

// A pod's share of one device.
struct ShareHolder {
  const ledger::PodEntry* pod = nullptr;
  device::Share share;
};

// By UUID of the device, the pods that hold a part of it.
using SharesByUuid = std::unordered_map<std::string_view, std::vector<ShareHolder>>;
SharesByUuid HoldersOf(const std::vector<const ledger::PodEntry*>& pods);

// A node with its GPUs, or MIG slices instead of a GPU in MIG mode. Holders are named by the UID of
// the pod only, so that the node looks the same to all users.
Json JsonOfNode(const ledger::ClusterLedger& ledger, const ledger::NodeEntry& node,
                const SharesByUuid& holders);
// The names of the links between all pairs of GPUs, row by row below the diagonal.
Json JsonOfLinks(const device::NodeInventory& inventory);

// `why`: why it waits, or "".
Json JsonOfPod(const ledger::PodEntry& pod, device::MemoryUnit unit, std::string_view why);

// "gpu: 2", "vcuda-core: 30, vcuda-memory: 20"; "" if it requests no devices.
std::string RequestTextOf(const device::DeviceRequest& request, device::MemoryUnit unit);

// Whether to show the node: it has GPUs, or a reason why it has none.
bool IsGpuNode(const ledger::NodeEntry& node);

}  // namespace tessera::console
