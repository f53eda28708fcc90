// SPDX-License-Identifier: Apache-2.0
// The few calls of the CUDA driver API that vectoradd makes, found with dlopen, so that the program
// builds without a toolkit and runs on whatever libcuda.so.1 the container was given.
#pragma once

#include <cstddef>
#include <cstdint>

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = uint64_t;
struct CUuuid {
  unsigned char bytes[16];
};

struct Driver {
  CUresult (*Init)(unsigned flags);
  CUresult (*DriverGetVersion)(int* version);
  CUresult (*DeviceGetCount)(int* count);
  CUresult (*DeviceGet)(CUdevice* device, int ordinal);
  CUresult (*DeviceGetName)(char* name, int length, CUdevice device);
  CUresult (*DeviceGetUuid)(CUuuid* uuid, CUdevice device);
  CUresult (*CtxCreate)(void** context, unsigned flags, CUdevice device);
  CUresult (*CtxSynchronize)();
  CUresult (*CtxDestroy)(void* context);
  CUresult (*ModuleLoadData)(void** module, const void* image);
  CUresult (*ModuleGetFunction)(void** function, void* module, const char* name);
  CUresult (*MemAlloc)(CUdeviceptr* pointer, size_t bytes);
  CUresult (*MemFree)(CUdeviceptr pointer);
  CUresult (*MemcpyHtoD)(CUdeviceptr to, const void* from, size_t bytes);
  CUresult (*MemcpyDtoH)(void* to, CUdeviceptr from, size_t bytes);
  CUresult (*LaunchKernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                           void* stream, void** parameters, void** extra);
  CUresult (*GetErrorName)(CUresult error, const char** name);
  CUresult (*GetErrorString)(CUresult error, const char** text);
};

// Prints what is missing and gives false where there is no driver.
bool LoadDriver(Driver* driver);
