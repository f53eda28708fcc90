// SPDX-License-Identifier: Apache-2.0
// Events on the Node for what people want to see in `kubectl describe node`: a GPU that became
// unhealthy or well again, a driver that went or came, a note of the inventory. Pure.
//
// They follow from what the node said before, which is its annotation, and what it shall say now.
// So an agent that was restarted repeats nothing, and says what happened while it was away.
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
  std::string_view reason;  // of api/names.h
  std::string message;
  bool operator==(const NodeEvent&) const = default;
};

// `before`: nothing on a node that never said anything. Where the driver goes or comes, that alone
// is said, not each of its GPUs.
std::vector<NodeEvent> EventsBetween(const std::optional<device::NodeInventory>& before,
                                     const device::NodeInventory& now);

// What annotation tessera.dev/devices of `node` says, if it can be read.
std::optional<device::NodeInventory> InventoryOn(const Json& node);

// The Event object; its name differs for different `now`. Events on nodes are in this namespace.
inline constexpr std::string_view kNodeEventNamespace = "default";
Json EventObject(const Json& node, const NodeEvent& event, WallTime now);

}  // namespace tessera::agent
