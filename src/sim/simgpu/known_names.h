// SPDX-License-Identifier: Apache-2.0
// What may be injected: functions of NVML and XIDs that exist. A fault on a name with a typing
// error would never hit anything, and nobody would know why. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::sim {

// Every function that the simulated NVML exports, answered or not.
const std::vector<std::string_view>& NvmlFunctions();

// OK for one of those, and for "*". INVALID_ARGUMENT names the nearest.
Status CheckNvmlFunction(std::string_view name);
// OK for a code of NVIDIA's catalogue. INVALID_ARGUMENT lists them.
Status CheckXid(uint64_t code);

// Up to three of `names` that look most like `text`, the nearest first; none that is altogether
// different. Case does not count.
std::vector<std::string_view> NearestNames(std::string_view text,
                                           const std::vector<std::string_view>& names);

}  // namespace tessera::sim
