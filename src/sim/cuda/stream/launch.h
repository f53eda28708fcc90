// SPDX-License-Identifier: Apache-2.0
// Commands of kernel launches (launch.cc) and fills (memset.cc), for streams and graphs.
#pragma once

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {

inline constexpr size_t kMaxParameterBytes = 4096;  // for one launch

struct LaunchShape {
  unsigned grid[3], block[3], shared_bytes;
  bool operator==(const LaunchShape&) const = default;
  uint64_t blocks() const { return uint64_t(grid[0]) * grid[1] * grid[2]; }
  uint64_t threads_of_block() const { return uint64_t(block[0]) * block[1] * block[2]; }
};

// The buffer of launch parameters that `extra` of cuLaunchKernel describes.
struct LaunchBuffer {
  bool valid = true;  // false: `extra` has an item of another kind
  const void* bytes = nullptr;
  size_t size = 0;
};
LaunchBuffer BufferOf(void* const* extra);

// Creates the command of a launch. Reads the launch parameters at once, not when the command runs.
Result PlanLaunch(Call& call, ContextTag* context, Function handle, const LaunchShape& shape,
                  void** parameters, void** extra, Command* command);
Result PlanMemset(ContextCall& call, const MemsetNodeParameters& parameters, Command* command);

}  // namespace tessera::cuda
