// SPDX-License-Identifier: Apache-2.0
// What cuDeviceGetAttribute answers.
#pragma once

#include "src/sim/state_layout.h"

namespace tessera::cuda {

// False: there is no such attribute.
bool DeviceAttribute(const sim::GpuFacts& gpu, int attribute, int* value);

}  // namespace tessera::cuda
