// SPDX-License-Identifier: Apache-2.0
// Kernels that the simulation really computes, known by the name and the parameters of their entry
// function. All others only take time.
#pragma once

#include <cstdint>
#include <functional>

#include "src/sim/cuda/image.h"

namespace tessera::cuda {

// What a launch hands over: the parameters, and how many threads run.
struct Launch {
  const Entry* entry = nullptr;
  const unsigned char* parameters = nullptr;  // laid out as the entry says
  uint64_t threads = 0;                       // along x
};

// A range of device memory that a kernel touches.
using CheckRange = bool (*)(void* who, DevicePtr pointer, uint64_t bytes);

// What a kernel will do.
struct Plan {
  Result result = Result::kSuccess;  // kIllegalAddress: it touches memory that is not the program's
  uint64_t bytes = 0;                // that it moves
  std::function<void()> compute;     // keeps nothing of the launch
};

// The kernel with this name and these parameters; null: not known, it only takes time.
struct KnownKernel;
const KnownKernel* FindKnownKernel(const Entry& entry);
Plan PlanKernel(const KnownKernel& kernel, const Launch& launch, CheckRange check, void* who);

}  // namespace tessera::cuda
