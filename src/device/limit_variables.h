// SPDX-License-Identifier: Apache-2.0
// HAMi-core's environment variables by which a container lowers its own limits:
//
//   CUDA_DEVICE_MEMORY_LIMIT=3g      device memory on each of its GPUs: bytes, or with k, m or g
//   CUDA_DEVICE_MEMORY_LIMIT_1=3g    the same on its second GPU, in the order of its grant
//   CUDA_DEVICE_SM_LIMIT=30          hundredths of the GPU's time; CUDA_DEVICE_SM_LIMIT_1 likewise
//
// 0 means no limit, as in HAMi-core; 100 and more hundredths also mean no limit. The variables only
// lower the limits, like the annotations of limit_annotations.h. Pure; any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/device/assignment.h"
#include "src/device/limit_annotations.h"

namespace tessera::device {

bool IsLimitVariable(std::string_view name);

// The limits that `variables` set on a container with `shares`. Other variables, and variables for
// GPUs that the container does not have, are ignored. INVALID_ARGUMENT names the variable.
Result<GpuLimits<Bytes>> MemoryLimitsOf(const StringMap& variables,
                                        const std::vector<DeviceShare>& shares);
Result<GpuLimits<MilliGpu>> ComputeLimitsOf(const StringMap& variables,
                                            const std::vector<DeviceShare>& shares);

}  // namespace tessera::device
