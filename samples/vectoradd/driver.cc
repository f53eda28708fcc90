// SPDX-License-Identifier: Apache-2.0
#include "samples/vectoradd/driver.h"

#include <dlfcn.h>

#include <cstdio>

namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  if (*function == nullptr) std::fprintf(stderr, "libcuda.so.1 has no %s\n", name);
  return *function != nullptr;
}

}  // namespace

bool LoadDriver(Driver* d) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "no CUDA driver: %s\nWas a GPU asked for (nvidia.com/gpu)?\n",
                 ::dlerror());
    return false;
  }
  return Find(library, "cuInit", &d->Init) &&
         Find(library, "cuDriverGetVersion", &d->DriverGetVersion) &&
         Find(library, "cuDeviceGetCount", &d->DeviceGetCount) &&
         Find(library, "cuDeviceGet", &d->DeviceGet) &&
         Find(library, "cuDeviceGetName", &d->DeviceGetName) &&
         Find(library, "cuDeviceGetUuid", &d->DeviceGetUuid) &&
         Find(library, "cuCtxCreate_v2", &d->CtxCreate) &&
         Find(library, "cuCtxSynchronize", &d->CtxSynchronize) &&
         Find(library, "cuCtxDestroy_v2", &d->CtxDestroy) &&
         Find(library, "cuModuleLoadData", &d->ModuleLoadData) &&
         Find(library, "cuModuleGetFunction", &d->ModuleGetFunction) &&
         Find(library, "cuMemAlloc_v2", &d->MemAlloc) &&
         Find(library, "cuMemFree_v2", &d->MemFree) &&
         Find(library, "cuMemcpyHtoD_v2", &d->MemcpyHtoD) &&
         Find(library, "cuMemcpyDtoH_v2", &d->MemcpyDtoH) &&
         Find(library, "cuLaunchKernel", &d->LaunchKernel) &&
         Find(library, "cuGetErrorName", &d->GetErrorName) &&
         Find(library, "cuGetErrorString", &d->GetErrorString);
}
