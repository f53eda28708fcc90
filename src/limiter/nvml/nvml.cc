// SPDX-License-Identifier: Apache-2.0
// The library that a container with a share finds as libnvidia-ml.so.1. It reports the container's
// share as the size of the GPU's memory, and the bytes that the container holds as used memory.
// nvidia-smi then shows these numbers. All other functions are the driver's own.
//
// The library owns no slot, so a monitor does not count as a process that uses a GPU. Threads: any.
#include <dlfcn.h>
#include <string.h>

#include "api/nvml_abi.h"
#include "src/limiter/loader/old_symbols.h"
#include "src/limiter/loader/paths.h"
#include "src/limiter/region/memory_budget.h"
#include "src/limiter/region/slots.h"
#include "src/limiter/region/spin_lock.h"
#include "src/limiter/region/uuid.h"

namespace tessera::limiter {
namespace {

struct RealNvml {
  nvml::fn::nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo;
  nvml::fn::nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetMemoryInfo_v2;
  nvml::fn::nvmlDeviceGetUUID nvmlDeviceGetUUID;
};
RealNvml real_nvml;

__attribute__((constructor)) void FindRealNvml() {
  void* library = ::dlopen(kRealNvml, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
#define LIMITER_FIND(name) \
  real_nvml.name = reinterpret_cast<nvml::fn::name>(::dlsym(library, #name))
  LIMITER_FIND(nvmlDeviceGetMemoryInfo);
  LIMITER_FIND(nvmlDeviceGetMemoryInfo_v2);
  LIMITER_FIND(nvmlDeviceGetUUID);
#undef LIMITER_FIND
}

// Maps the files of the region as soon as they exist: `usage` is missing until a process uses CUDA.
class RegionView {
 public:
  // False: the GPU is not limited.
  bool ReadShare(nvml::Device device, uint64_t* limit, uint64_t* held) {
    char text[96];
    uint8_t uuid[16];
    if (real_nvml.nvmlDeviceGetUUID == nullptr ||
        real_nvml.nvmlDeviceGetUUID(device, text, sizeof(text)) != nvml::Return::kSuccess ||
        !ParseUuid(text, uuid)) {
      return false;
    }
    const SpinGuard guard(&lock_);
    if (limits_ == nullptr && MapLimits(kLimitsPath, &limits_) != 0) return false;
    if (usage_ == nullptr) (void)MapUsage(kUsagePath, &usage_);
    budget_.Open(limits_, usage_, MemoryBudget::kNoSlot, kUsagePath);
    const int gpu = FindGpu(*limits_, uuid);
    if (gpu < 0 || budget_.Limit(gpu) == 0) return false;
    *limit = budget_.Limit(gpu);
    *held = usage_ != nullptr ? budget_.HeldBytesAfterSweep(gpu) : 0;
    return true;
  }

 private:
  SpinLock lock_;
  const Limits* limits_ = nullptr;
  Usage* usage_ = nullptr;
  MemoryBudget budget_;
};
RegionView region_view;

// Replaces the device's numbers by the container's. Total and free memory never exceed the
// device's.
template <typename Memory>
void ReplaceByShare(nvml::Device device, Memory* memory) {
  uint64_t limit = 0, held = 0;
  if (!region_view.ReadShare(device, &limit, &held)) return;
  if (limit < memory->total) memory->total = limit;
  memory->used = held < memory->total ? held : memory->total;
  const uint64_t room = memory->total - memory->used;
  if (room < memory->free) memory->free = room;
}

}  // namespace
}  // namespace tessera::limiter

namespace tessera::nvml {

using limiter::real_nvml;
using limiter::ReplaceByShare;

#define LIMITER_EXPORT extern "C" __attribute__((visibility("default")))

LIMITER_EXPORT Return nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  if (real_nvml.nvmlDeviceGetMemoryInfo == nullptr) return Return::kFunctionNotFound;
  const Return result = real_nvml.nvmlDeviceGetMemoryInfo(device, memory);
  if (result == Return::kSuccess) ReplaceByShare(device, memory);
  return result;
}

// A share does not include memory that the driver reserves.
LIMITER_EXPORT Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* memory) {
  if (real_nvml.nvmlDeviceGetMemoryInfo_v2 == nullptr) return Return::kFunctionNotFound;
  const Return result = real_nvml.nvmlDeviceGetMemoryInfo_v2(device, memory);
  if (result != Return::kSuccess) return result;
  const uint64_t total = memory->total;
  ReplaceByShare(device, memory);
  if (memory->total != total) memory->reserved = 0;
  return result;
}

}  // namespace tessera::nvml
