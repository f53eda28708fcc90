// SPDX-License-Identifier: Apache-2.0
// Device memory of the contexts that this process has on each GPU. The first context on a GPU is
// not charged, because every program needs one, and it may take more than a small share. Each
// further context is charged with the size that was measured when this process created its second
// context.
//
// So the charge follows from the number of contexts, and does not depend on which context ends
// first. Threads: any. The lock is held for a few instructions, never across a call of the driver.
#pragma once

#include <cstdint>

#include "src/limiter/region.h"
#include "src/limiter/region/spin_lock.h"

namespace tessera::limiter {

class ContextMemory {
 public:
  // Largest charge of a context. A context that appears to be larger was measured while other
  // processes allocated. The agent has the same bound (agent/limits/unaccounted.h).
  static constexpr uint64_t kMaxCharge = uint64_t(512) << 20;

  // The charge of the next context; 0 for the first context, and while the size is unknown.
  uint64_t NextCharge(int gpu);
  // Whether the next context is to be measured.
  bool NeedsMeasurement(int gpu);
  // Records the size of a context. Only the first size other than 0 has an effect.
  void RecordSize(int gpu, uint64_t bytes);
  // Adds a context that the driver has created. Returns the bytes that the caller must charge.
  uint64_t AddContext(int gpu);
  // Removes a context that the driver has destroyed. Returns the bytes that the caller must
  // release.
  uint64_t RemoveContext(int gpu);
  // Removes all contexts and sizes, in a child after fork.
  void Reset();

 private:
  struct GpuContexts {
    uint32_t contexts;
    uint64_t size;     // of one context; 0: unknown
    uint64_t charged;  // for all contexts together
  };
  SpinLock lock_;
  GpuContexts gpus_[kMaxGpus] = {};
};

}  // namespace tessera::limiter
