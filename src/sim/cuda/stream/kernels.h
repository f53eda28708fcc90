// SPDX-License-Identifier: Apache-2.0
// Kernels that the simulation computes, identified by name and parameters of their entry function.
// All other kernels only take time.
#pragma once

#include <cstdint>
#include <functional>

#include "src/sim/cuda/module/image.h"

namespace tessera::cuda {

// The parameters and threads of a launch.
struct KernelLaunch {
  const Entry* entry = nullptr;
  const unsigned char* parameters = nullptr;  // in the layout of the entry
  uint64_t threads = 0;                       // along x
};

// True: the program may access the range of device memory.
using RangeChecker = bool (*)(void* check_argument, DevicePtr pointer, uint64_t bytes);

// The result of checking a launch: error, duration and effect.
struct LaunchEffect {
  Result result = Result::kSuccess;  // kIllegalAddress: a range is not accessible
  uint64_t bytes = 0;                // memory traffic
  std::function<void()> compute;     // may run after the end of the KernelLaunch object
};

// The known kernel with the name and the parameter sizes of `entry`; null: the kernel is unknown.
struct KnownKernel;
const KnownKernel* FindKnownKernel(const Entry& entry);
LaunchEffect EffectOf(const KnownKernel& kernel, const KernelLaunch& launch, RangeChecker check,
                      void* check_argument);

}  // namespace tessera::cuda
