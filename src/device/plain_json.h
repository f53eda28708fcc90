// SPDX-License-Identifier: Apache-2.0
// Included only in src/device. Reads annotations in the exact form of their own encoders in one
// pass, because a cluster has tens of thousands of annotations. For any other text (an unknown
// member, an escape, an error) the functions return nothing, and the caller decodes it with
// json_fields.h, which reports errors. The result is always equal to that of json_fields.h.
#pragma once

#include <optional>
#include <string_view>

#include "src/device/assignment.h"
#include "src/device/gpu.h"

namespace tessera::device {

// Returns nothing also for an unhealthy GPU, MIG, notes and problems.
std::optional<NodeInventory> ReadPlainInventory(std::string_view text);
// Does not check names and amounts.
std::optional<Assignment> ReadPlainAssignment(std::string_view text);

}  // namespace tessera::device
