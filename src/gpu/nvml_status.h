// SPDX-License-Identifier: Apache-2.0
// Tables of NVML's return codes (nvmlReturn_t in nvml.h) as Status, and of the names of its
// functions. Threads: pure functions.
#pragma once

#include <string_view>

#include "src/base/status.h"
#include "src/gpu/nvml.h"

namespace tessera::gpu {

// `result` is the function's return value; 0 gives OK.
Status NvmlStatus(NvmlCall call, int result);
// The vendor's name of an error from NvmlStatus, "GPU_IS_LOST": several NVML errors have the same
// Code. For other errors, the name of the Code.
std::string_view NvmlErrorName(const Status& status);

}  // namespace tessera::gpu
