// SPDX-License-Identifier: Apache-2.0
// Events on the Node for `kubectl describe node`: a GPU that became unhealthy or healthy, a driver
// that was loaded or removed, a note of the inventory. Pure.
//
// Events follow from the node's annotation, which is the earlier state, and the new inventory. So a
// restarted agent repeats no Event, and records changes since it stopped.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/device/gpu.h"
#include "src/formats/json.h"

namespace tessera::agent {

struct NodeEvent {
  bool warning = false;
  std::string_view reason;  // from api/names.h
  std::string message;
  bool operator==(const NodeEvent&) const = default;
};

// `before`: nullopt for a node that was never published. A driver that is loaded or removed makes
// one Event, not an Event for each of its GPUs.
std::vector<NodeEvent> EventsBetween(const std::optional<device::NodeInventory>& before,
                                     const device::NodeInventory& now);

// The inventory in annotation tessera.dev/devices of `node`; nullopt if it cannot be read.
std::optional<device::NodeInventory> InventoryOn(const Json& node);

// The Event object; its name contains `now`. Events on nodes are in namespace kNodeEventNamespace.
inline constexpr std::string_view kNodeEventNamespace = "default";
Json EventObject(const Json& node, const NodeEvent& event, WallTime now);

}  // namespace tessera::agent
