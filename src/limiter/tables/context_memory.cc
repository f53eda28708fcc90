// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/context_memory.h"

#include "src/limiter/tables/blocks.h"

namespace tessera::limiter {

uint64_t ContextMemory::NextCharge(int gpu) {
  const SpinGuard lock(&lock_);
  return gpus_[gpu].contexts == 0 ? 0 : gpus_[gpu].size;
}

bool ContextMemory::IsToBeMeasured(int gpu) {
  const SpinGuard lock(&lock_);
  return gpus_[gpu].contexts != 0 && gpus_[gpu].size == 0;
}

void ContextMemory::Learn(int gpu, uint64_t bytes) {
  const SpinGuard lock(&lock_);
  if (gpus_[gpu].size != 0) return;
  gpus_[gpu].size = RoundToBlocks(bytes < kLargest ? bytes : kLargest);
}

// Contexts that were created while the size was not known are charged now.
uint64_t ContextMemory::Begin(int gpu) {
  const SpinGuard lock(&lock_);
  GpuContexts& of_gpu = gpus_[gpu];
  const uint64_t before = of_gpu.charged;
  of_gpu.charged = of_gpu.contexts++ * of_gpu.size;
  return of_gpu.charged - before;
}

uint64_t ContextMemory::End(int gpu) {
  const SpinGuard lock(&lock_);
  GpuContexts& of_gpu = gpus_[gpu];
  const uint64_t before = of_gpu.charged;
  if (of_gpu.contexts != 0) --of_gpu.contexts;
  const uint64_t most = of_gpu.contexts == 0 ? 0 : (of_gpu.contexts - 1) * of_gpu.size;
  if (most < before) of_gpu.charged = most;
  return before - of_gpu.charged;
}

void ContextMemory::Reset() {
  lock_.Reset();
  for (GpuContexts& of_gpu : gpus_) of_gpu = {};
}

}  // namespace tessera::limiter
