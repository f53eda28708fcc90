// SPDX-License-Identifier: Apache-2.0
// Names of NVML functions and XIDs, to check the arguments of `simgpu inject`. Without the check, a
// fault with a misspelled name would never apply, and no error would show it. Pure. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::sim {

// All functions that the simulated NVML exports, implemented or not.
const std::vector<std::string_view>& NvmlFunctions();

// OK: a function of NvmlFunctions, or "*". INVALID_ARGUMENT: names the nearest functions.
Status CheckNvmlFunction(std::string_view name);
// OK: a code of NVIDIA's catalog. INVALID_ARGUMENT: lists the codes.
Status CheckXid(uint64_t code);

// Up to three of `names` that are most similar to `text`, the nearest first, without names that are
// too different. Case is ignored.
std::vector<std::string_view> NearestNames(std::string_view text,
                                           const std::vector<std::string_view>& names);

}  // namespace tessera::sim
