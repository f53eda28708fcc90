// SPDX-License-Identifier: Apache-2.0
// The attributes of cuDeviceGetAttribute.
#pragma once

#include "src/sim/state_layout.h"

namespace tessera::cuda {

// Writes the attribute of a GPU. False: unknown attribute.
bool DeviceAttribute(const sim::GpuFacts& gpu, int attribute, int* value);

}  // namespace tessera::cuda
