// SPDX-License-Identifier: Apache-2.0
// Kernels that the simulation really computes, known by the name and the parameters of their entry
// function. All others only take time.
#pragma once

#include <cstdint>

#include "src/sim/cuda/image.h"

namespace tessera::cuda {

// What a launch hands over: copies of the parameters, and how many threads run.
struct Launch {
  const Entry* entry = nullptr;
  const unsigned char* parameters = nullptr;  // laid out as the entry says; null if none
  uint64_t threads = 0;                       // along x
};

// A range of device memory that a kernel touches.
using CheckRange = bool (*)(void* who, DevicePtr pointer, uint64_t bytes);

// Runs it if it is known. kIllegalAddress: it would touch memory that is not the program's.
// `*bytes` is what it moves, 0 for a kernel that is not known.
Result RunKernel(const Launch& launch, CheckRange check, void* who, uint64_t* bytes);

}  // namespace tessera::cuda
