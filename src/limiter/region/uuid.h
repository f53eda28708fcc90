// SPDX-License-Identifier: Apache-2.0
// The UUID of a GPU or MIG device: its text, its bytes, its index in the limits. Threads: any.
#pragma once

#include <stdint.h>

#include "src/limiter/region.h"

namespace tessera::limiter {

// Reads the 16 bytes after "GPU-" or "MIG-", with dashes anywhere. False: the text is no UUID.
bool ParseUuid(const char* text, uint8_t (&uuid)[16]);

// The index of the GPU with this UUID; -1: `limits` does not have the GPU.
inline int FindGpu(const Limits& limits, const uint8_t (&uuid)[16]) {
  for (uint32_t i = 0; i < limits.gpu_count && i < kMaxGpus; ++i) {
    if (__builtin_memcmp(limits.gpus[i].uuid, uuid, sizeof(uuid)) == 0) return int(i);
  }
  return -1;
}

}  // namespace tessera::limiter
