// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/context_memory.h"

#include "src/limiter/tables/blocks.h"

namespace tessera::limiter {

uint64_t ContextMemory::NextCharge(int gpu) {
  const SpinGuard lock(&lock_);
  return gpus_[gpu].contexts == 0 ? 0 : gpus_[gpu].size;
}

bool ContextMemory::NeedsMeasurement(int gpu) {
  const SpinGuard lock(&lock_);
  return gpus_[gpu].contexts != 0 && gpus_[gpu].size == 0;
}

void ContextMemory::RecordSize(int gpu, uint64_t bytes) {
  const SpinGuard lock(&lock_);
  if (gpus_[gpu].size != 0) return;
  gpus_[gpu].size = RoundToBlocks(bytes < kMaxCharge ? bytes : kMaxCharge);
}

// Contexts that were created while the size was not known are charged now.
uint64_t ContextMemory::AddContext(int gpu) {
  const SpinGuard lock(&lock_);
  GpuContexts& gpu_contexts = gpus_[gpu];
  const uint64_t before = gpu_contexts.charged;
  gpu_contexts.charged = gpu_contexts.contexts++ * gpu_contexts.size;
  return gpu_contexts.charged - before;
}

uint64_t ContextMemory::RemoveContext(int gpu) {
  const SpinGuard lock(&lock_);
  GpuContexts& gpu_contexts = gpus_[gpu];
  const uint64_t before = gpu_contexts.charged;
  if (gpu_contexts.contexts != 0) --gpu_contexts.contexts;
  const uint64_t max_charge =
      gpu_contexts.contexts == 0 ? 0 : (gpu_contexts.contexts - 1) * gpu_contexts.size;
  if (max_charge < before) gpu_contexts.charged = max_charge;
  return before - gpu_contexts.charged;
}

void ContextMemory::Reset() {
  lock_.Reset();
  for (GpuContexts& gpu_contexts : gpus_) gpu_contexts = {};
}

}  // namespace tessera::limiter
