// SPDX-License-Identifier: Apache-2.0
// A libcuda that does nothing, for limiter_bench: one GPU, one context, and a new address for each
// allocation.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t next = 1ull << 40;

int cuInit(unsigned flags) { return (void)flags, 0; }
int cuCtxGetCurrent(void** context) { return *context = (void*)0x1000, 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuDeviceGetUuid_v2(char uuid[16], int device) {
  memset(uuid, 0, 16);
  uuid[15] = 1;
  return device;
}
int cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
  *pointer = __atomic_fetch_add(&next, (bytes + 0x1fffff) & ~(size_t)0x1fffff, __ATOMIC_RELAXED);
  return 0;
}
int cuMemFree_v2(uint64_t pointer) { return (void)pointer, 0; }
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  return *free_bytes = *total = (size_t)1 << 50, 0;
}
int cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                        int* status) {
  (void)symbol, (void)version, (void)flags;
  if (status != NULL) *status = 0;
  *function = (void*)&cuMemAlloc_v2;
  return 0;
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void* stream,
                   void** parameters, void** extra) {
  (void)function, (void)x, (void)y, (void)z, (void)block_x, (void)block_y, (void)block_z,
      (void)shared, (void)stream;
  (void)parameters, (void)extra;
  return 0;
}
int cuEventCreate(void** event, unsigned flags) { return (void)flags, *event = (void*)event, 0; }
int cuEventRecord(void* event, void* stream) { return (void)event, (void)stream, 0; }
int cuEventQuery(void* event) { return (void)event, 0; }
// Every launch appears to take 100 ns, so that the limiter times few launches.
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  return (void)start, (void)end, *milliseconds = 0.0016f, 0;
}
