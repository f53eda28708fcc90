// SPDX-License-Identifier: Apache-2.0
// What is not implemented answers NOT_SUPPORTED, whatever its arguments, and is counted.
#include "src/sim/cuda/driver.h"

namespace tessera::cuda {
namespace {

Result NotImplemented(const char* name) {
  Driver& driver = Driver::Get();
  if (!driver.initialised() || driver.forked()) return Result::kNotInitialized;
  driver.state().CountUnimplemented(name);
  return Result::kNotSupported;
}

}  // namespace

#define CUDA_OTHER(name) \
  CUDA_EXPORT Result name() { return NotImplemented(#name); }
#include "src/sim/cuda/others.inc"
#undef CUDA_OTHER

// The private tables of the driver are not part of its ABI.
CUDA_EXPORT Result cuGetExportTable(const void** table, const Uuid* id) {
  if (table == nullptr || id == nullptr) return Result::kInvalidValue;
  *table = nullptr;
  return NotImplemented("cuGetExportTable");
}

CUDA_EXPORT Result cuModuleGetLoadingMode(int* mode) { return Put(mode, 2); }  // lazy
CUDA_EXPORT Result cuProfilerStart() { return Result::kSuccess; }
CUDA_EXPORT Result cuProfilerStop() { return Result::kSuccess; }

}  // namespace tessera::cuda
