// SPDX-License-Identifier: Apache-2.0
// Included only in src/device. Reads annotations in one pass if they have exactly the form that
// Tessera's encoders write, because a cluster has tens of thousands of annotations. For any other
// text (an unknown member, an escape, an error) the functions return nullopt, and the caller
// decodes the text with json_fields.h, which reports errors. Both ways give equal values.
#pragma once

#include <optional>
#include <string_view>

#include "src/device/assignment.h"
#include "src/device/gpu.h"

namespace tessera::device {

// Also returns nullopt if a GPU is unhealthy or in MIG mode, or if there are notes or problems.
std::optional<NodeInventory> ReadPlainInventory(std::string_view text);
// Does not check names and amounts.
std::optional<Assignment> ReadPlainAssignment(std::string_view text);

}  // namespace tessera::device
