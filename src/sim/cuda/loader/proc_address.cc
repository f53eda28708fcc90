// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: finds a symbol by base name, CUDA version and stream mode.
#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/loader/symbols.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kLegacyStream = 1, kPerThreadStream = 2;

Result Find(const char* symbol, void** function, int version, uint64_t flags, FoundSymbol* found) {
  if (symbol == nullptr || function == nullptr) return Result::kInvalidValue;
  if ((flags & ~(kLegacyStream | kPerThreadStream)) != 0) return Result::kInvalidValue;
  *found = FindSymbol(symbol, (flags & kPerThreadStream) != 0, unsigned(version),
                      Driver::Get().CudaVersion());
  return Result::kSuccess;
}

}  // namespace

CUDA_EXPORT Result cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                       uint64_t flags, int* status) {
  FoundSymbol found;
  const Result result = Find(symbol, function, version, flags, &found);
  if (result != Result::kSuccess) return result;
  *function = reinterpret_cast<void*>(found.function);
  PutIf(status, int(found.status));
  return Result::kSuccess;
}

// The version without a status. It does not write `function` if it finds no symbol.
CUDA_EXPORT Result cuGetProcAddress(const char* symbol, void** function, int version,
                                    uint64_t flags) {
  FoundSymbol found;
  const Result result = Find(symbol, function, version, flags, &found);
  if (result != Result::kSuccess) return result;
  if (found.status != Lookup::kFound) return Result::kNotFound;
  *function = reinterpret_cast<void*>(found.function);
  return Result::kSuccess;
}

}  // namespace tessera::cuda
