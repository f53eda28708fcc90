// SPDX-License-Identifier: Apache-2.0
// Refuses unimplemented functions, and defines functions that need no state.
#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/loader/symbols.h"

namespace tessera::cuda {

int ReportUnimplemented(const char* symbol) {
  Driver& driver = Driver::Get();
  if (!driver.initialized() || driver.forked()) return int(Result::kNotInitialized);
  driver.state().CountUnimplemented(symbol);
  return int(Result::kNotSupported);
}

// The private tables of the driver are not part of its ABI.
CUDA_EXPORT Result cuGetExportTable(const void** table, const Uuid* id) {
  if (table == nullptr || id == nullptr) return Result::kInvalidValue;
  *table = nullptr;
  return Result(ReportUnimplemented("cuGetExportTable"));
}

CUDA_EXPORT Result cuModuleGetLoadingMode(int* mode) { return Put(mode, 2); }  // lazy
CUDA_EXPORT Result cuProfilerStart() { return Result::kSuccess; }
CUDA_EXPORT Result cuProfilerStop() { return Result::kSuccess; }

}  // namespace tessera::cuda
