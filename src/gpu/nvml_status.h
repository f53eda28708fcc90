// SPDX-License-Identifier: Apache-2.0
// NVML's return codes as Status, and the names of its functions: two tables.
#pragma once

#include <string_view>

#include "src/base/status.h"
#include "src/gpu/nvml.h"

namespace tessera::gpu {

// `result` is what the function returned; 0 gives OK.
Status NvmlStatus(NvmlCall call, int result);
// The vendor's name of an error that NvmlStatus gave, "GPU_IS_LOST": several are one code of ours.
// For an error from elsewhere the name of its code.
std::string_view NvmlErrorName(const Status& status);

}  // namespace tessera::gpu
