// SPDX-License-Identifier: Apache-2.0
// Commands of launches and fills, for streams and for graphs. See launch.cc and copy.cc.
#pragma once

#include "src/sim/cuda/driver.h"

namespace tessera::cuda {

inline constexpr size_t kMaxParameterBytes = 4096;  // of a launch

struct Shape {
  unsigned grid[3], block[3], shared_bytes;
  uint64_t blocks() const { return uint64_t(grid[0]) * grid[1] * grid[2]; }
  uint64_t threads_of_block() const { return uint64_t(block[0]) * block[1] * block[2]; }
};

// The parameters of a launch in one buffer, as `extra` of cuLaunchKernel has them.
struct LaunchBuffer {
  bool valid = true;  // false: `extra` has an item of another kind
  const void* bytes = nullptr;
  size_t size = 0;
};
LaunchBuffer BufferOf(void* const* extra);

// What a launch of the function will do. The parameters are read now.
Result PlanLaunch(ContextCall& call, Function handle, const Shape& shape, void** parameters,
                  void** extra, Command* command);
Result PlanMemset(ContextCall& call, const MemsetNodeParameters& parameters, Command* command);

}  // namespace tessera::cuda
