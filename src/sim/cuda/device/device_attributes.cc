// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/device/device_attributes.h"

#include <cstdint>

namespace tessera::cuda {
namespace {

constexpr int kLastDeviceAttribute = 150;

struct FixedAttribute {
  int attribute;
  int value;
};

// Attributes with one value on every GPU of the last ten years.
constexpr FixedAttribute kFixedAttributes[] = {
    {1, 1024},                                       // threads of a block
    {2, 1024},                                       // block dimensions
    {3, 1024},        {4, 64},     {5, 2147483647},  // grid dimensions
    {6, 65535},       {7, 65535},  {8, 49152},       // shared memory of a block
    {9, 65536},                                      // constant memory
    {10, 32},                                        // warp
    {11, 2147483647},                                // pitch
    {12, 65536},                                     // registers of a block
    {14, 512},                                       // texture alignment
    {15, 1},                                         // copies beside kernels
    {19, 1},                                         // maps host memory
    {21, 131072},                                    // texture sizes
    {22, 131072},     {23, 65536}, {24, 16384},     {25, 16384}, {26, 16384},
    {27, 32768},      {28, 32768}, {29, 2048},      {30, 512},  // surface alignment
    {31, 1},                                                    // concurrent kernels
    {41, 1},                                                    // unified addressing
    {42, 32768},      {43, 2048},  {51, 32},                    // texture pitch alignment
    {78, 1},                                                    // stream priorities
    {79, 1},                                                    // caches
    {80, 1},          {82, 65536},                              // registers of a multiprocessor
    {83, 1},                                                    // managed memory
    {89, 1},                                                    // managed memory beside the CPU
    {90, 1},                                                    // preemption
    {91, 1},   // host pointers of registered memory
    {95, 1},   // cooperative launch
    {96, 1},   // cooperative launch on several devices
    {99, 1},   // host registration
    {102, 1},  // virtual memory management
    {103, 1},  // shared by file descriptors
    {115, 1},  // memory pools
    {119, 1},  // memory pools shared by file descriptors
};

// The ratio of the throughput of single precision to that of double precision.
int PrecisionRatio(const sim::GpuFacts& gpu) {
  if (gpu.cc_minor == 0) return 2;  // 7.0, 8.0, 9.0, 10.0: chips for data centers
  return gpu.cc_major == 7 ? 32 : 64;
}

int ValueOf(const sim::GpuFacts& gpu, int attribute) {
  switch (attribute) {
    case 13:
      return int(gpu.clock_sm_max * 1000);
    case 16:
      return int(gpu.sm_count);
    case 32:
      return int(gpu.ecc_enabled);
    case 33:
      return int(gpu.pci.bus);
    case 34:
      return int(gpu.pci.device);
    case 36:
      return int(gpu.clock_mem_max * 1000);
    case 37:
      return int(gpu.memory_bus_bits);
    case 38:
      return int(gpu.l2_bytes);
    case 39:
      return int(gpu.max_threads_per_sm);
    case 40:
      return int(gpu.async_engines);
    case 50:
      return int(gpu.pci.domain);
    case 75:
      return int(gpu.cc_major);
    case 76:
      return int(gpu.cc_minor);
    case 81:
      return int(gpu.shared_per_sm);
    case 87:
      return PrecisionRatio(gpu);
    case 97:
      return int(gpu.shared_per_block_optin);
    case 106:
      return gpu.max_threads_per_sm >= 2048 ? 32 : 16;
    case 111:
      return gpu.cc_major >= 8 ? 1024 : 0;
    case 120:
      return gpu.cc_major >= 9;  // clusters
    case 134:
      return gpu.numa_node;
    default:
      break;
  }
  for (const FixedAttribute& fixed : kFixedAttributes) {
    if (fixed.attribute == attribute) return fixed.value;
  }
  return 0;
}

}  // namespace

bool DeviceAttribute(const sim::GpuFacts& gpu, int attribute, int* value) {
  if (attribute < 1 || attribute > kLastDeviceAttribute) return false;
  *value = ValueOf(gpu, attribute);
  return true;
}

}  // namespace tessera::cuda
