// SPDX-License-Identifier: Apache-2.0
// The dialects in which pods request GPUs, parsed into one DeviceRequest:
//
//   nvidia.com/gpu: 2                whole GPUs
//   nvidia.com/mig-1g.10gb: 1        MIG slices
//   aliyun.com/gpu-mem: 8            memory of one GPU for all containers of a pod, in MemoryUnit
//   tencent.com/vcuda-core: 30       hundredths of one GPU, or a multiple of 100 for whole GPUs,
//   tencent.com/vcuda-memory: 20     blocks of 256 MiB; required if vcuda-core is below 100
//
// Ignores all other resources (cpu, rdma/hca, …), ResourceClaims, and the container's environment,
// which src/runtime reads.
//
// Threads: any. Errors: INVALID_ARGUMENT with the container, the resource, the value and advice. A
// container that requests a resource twice, or in two dialects, is rejected.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/units.h"
#include "src/device/request.h"

namespace tessera::device {

// The size of one unit of aliyun.com/gpu-mem, as the cluster or the node is configured.
enum class MemoryUnit : uint8_t { kGiB, kMiB };
// "GiB" or "MiB".
std::string_view NameOf(MemoryUnit unit);
std::optional<MemoryUnit> MemoryUnitFromName(std::string_view name);
Bytes SizeOf(MemoryUnit unit);

// The size of one unit of tencent.com/vcuda-memory.
inline constexpr Bytes kVcudaMemoryBlock = MiB(256);
// The compute of one unit of tencent.com/vcuda-core.
inline constexpr MilliGpu kVcudaCore{10};

// A container in its pod's spec: resource names with their quantities as text.
struct ContainerSpec {
  std::string name;
  Phase phase = Phase::kMain;
  StringMap limits;
  StringMap requests;
};

struct PodSpec {
  std::vector<ContainerSpec> containers;  // init containers first, in the order of the spec
  StringMap annotations;                  // annotations outside api/names.h are ignored
};

struct DialectOptions {
  MemoryUnit gpu_mem_unit = MemoryUnit::kGiB;
};

// Dialect kNone if the container requests nothing, or only zeros.
Result<ContainerRequest> ParseContainer(const ContainerSpec& spec, const DialectOptions& options);

// Parses all containers and the pod's annotations: allowed models, allowed and excluded UUIDs, the
// policy, the elastic limit.
Result<DeviceRequest> ParseRequest(const PodSpec& pod, const DialectOptions& options);

// A container's request for users, in the units of its dialect: "gpu: 2", "gpu-mem: 8 GiB",
// "vcuda-core: 30, vcuda-memory: 20", "mig-1g.10gb: 1". "" if it requests no devices.
std::string RequestText(const ContainerRequest& container, MemoryUnit unit);
// The requests of all containers: "gpu-mem: 4 GiB + gpu-mem: 4 GiB". "" without requests.
std::string RequestText(const DeviceRequest& request, MemoryUnit unit);

}  // namespace tessera::device
