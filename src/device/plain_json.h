// SPDX-License-Identifier: Apache-2.0
// Private to this room: annotations as their own encoders write them are read in one pass, because
// a cluster has tens of thousands. Whatever else a text holds (an unknown member, an escape, an
// error) gives nothing, and the caller decodes it with json_fields.h, which knows what to say about
// it. So the result is always that of json_fields.h.
#pragma once

#include <optional>
#include <string_view>

#include "src/device/assignment.h"
#include "src/device/gpu.h"

namespace tessera::device {

// Nothing for an unhealthy GPU, MIG, notes and problems, too.
std::optional<NodeInventory> ReadPlainInventory(std::string_view text);
// Names and amounts are not checked yet.
std::optional<Assignment> ReadPlainAssignment(std::string_view text);

}  // namespace tessera::device
