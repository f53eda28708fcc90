// SPDX-License-Identifier: Apache-2.0
#pragma once

// The structs of NVML's ABI about MIG: GPU instances, compute instances and their profiles; see
// nvml_abi.h.

#include <cstdint>

#include "api/nvml_values.h"

namespace tessera::nvml {

struct Placement {
  unsigned start;
  unsigned size;
};

struct GpuInstanceProfileInfo {
  unsigned id;
  unsigned p2p_supported;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned copy_engines;
  unsigned decoders;
  unsigned encoders;
  unsigned jpegs;
  unsigned ofas;
  std::uint64_t memory_mb;
};
static_assert(sizeof(GpuInstanceProfileInfo) == 48);

struct GpuInstanceInfo {
  Device device;
  unsigned id;
  unsigned profile_id;
  Placement placement;
};
static_assert(sizeof(GpuInstanceInfo) == 24);

struct ComputeInstanceInfo {
  Device device;
  GpuInstance gpu_instance;
  unsigned id;
  unsigned profile_id;
  Placement placement;
};
static_assert(sizeof(ComputeInstanceInfo) == 32);

struct ComputeInstanceProfileInfo {
  unsigned id;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned shared_copy_engines;
  unsigned shared_decoders;
  unsigned shared_encoders;
  unsigned shared_jpegs;
  unsigned shared_ofas;
};
static_assert(sizeof(ComputeInstanceProfileInfo) == 36);

// GpuInstanceProfileInfo with a name, since driver 510. GpuInstanceProfileInfoV3 has capabilities
// instead of p2p_supported.
struct GpuInstanceProfileInfoV2 {
  unsigned version;
  unsigned id;
  unsigned p2p_supported;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned copy_engines;
  unsigned decoders;
  unsigned encoders;
  unsigned jpegs;
  unsigned ofas;
  std::uint64_t memory_mb;
  char name[96];
};
static_assert(sizeof(GpuInstanceProfileInfoV2) == 152);

struct GpuInstanceProfileInfoV3 {
  unsigned version;
  unsigned id;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned copy_engines;
  unsigned decoders;
  unsigned encoders;
  unsigned jpegs;
  unsigned ofas;
  std::uint64_t memory_mb;
  char name[96];
  unsigned capabilities;
};
static_assert(sizeof(GpuInstanceProfileInfoV3) == 152);

struct ComputeInstanceProfileInfoV2 {
  unsigned version;
  unsigned id;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned shared_copy_engines;
  unsigned shared_decoders;
  unsigned shared_encoders;
  unsigned shared_jpegs;
  unsigned shared_ofas;
  char name[96];
};
static_assert(sizeof(ComputeInstanceProfileInfoV2) == 136);

}  // namespace tessera::nvml
