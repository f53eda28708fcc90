// SPDX-License-Identifier: Apache-2.0
// NVML's return codes as Status, and the names of its functions: two tables.
#pragma once

#include "src/base/status.h"
#include "src/gpu/nvml.h"

namespace tessera::gpu {

// `result` is what the function returned; 0 gives OK.
Status NvmlStatus(NvmlCall call, int result);

}  // namespace tessera::gpu
