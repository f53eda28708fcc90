// SPDX-License-Identifier: Apache-2.0
// cuInit, cuDriverGetVersion and cuDevice*.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/sim/cuda/device/device_attributes.h"
#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/loader/symbols.h"

namespace tessera::cuda {
namespace {

constexpr int kP2pPerformanceRank = 1;
constexpr int kP2pAccess = 2;
constexpr int kP2pNativeAtomic = 3;

bool HasNvLink(const sim::GpuFacts& from, uint32_t to) {
  for (const sim::NvLink& link : from.links) {
    if (link.active != 0 && (link.remote_gpu == int32_t(to) || link.remote_gpu < 0)) return true;
  }
  return false;
}

Result UuidBytes(const char* text, Uuid* uuid) {
  if (uuid == nullptr) return Result::kInvalidValue;
  size_t count = 0;
  for (const char* c = text + strlen("GPU-"); *c != '\0' && count < 16; ++c) {
    if (*c == '-') continue;
    const char digits[3] = {c[0], c[1], '\0'};
    uuid->bytes[count++] = char(strtol(digits, nullptr, 16));
    ++c;
  }
  return Result::kSuccess;
}

bool IsDevicePool(const MemLocation* location, int type) {
  constexpr int kPinnedMemory = 1;  // CUmemAllocationType
  return location != nullptr && location->type == kLocationDevice && type == kPinnedMemory;
}

}  // namespace

CUDA_EXPORT Result cuInit(unsigned flags) { return Driver::Get().Init(flags); }

// Works before cuInit, too.
CUDA_EXPORT Result cuDriverGetVersion(int* version) {
  const unsigned cuda = Driver::Get().CudaVersion();
  return cuda == Driver::kNoNode ? Result::kNoDevice : Put(version, cuda);
}

CUDA_EXPORT Result cuDeviceGet(Device* device, int ordinal) {
  CUDA_ENTER(Call, call);
  if (!call->IsDevice(ordinal)) return Result::kInvalidDevice;
  return Put(device, ordinal);
}

CUDA_EXPORT Result cuDeviceGetCount(int* count) {
  CUDA_ENTER(Call, call);
  return Put(count, call->device_count());
}

CUDA_EXPORT Result cuDeviceGetName(char* name, int length, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  if (name == nullptr || length <= 0) return Result::kInvalidValue;
  snprintf(name, size_t(length), "%s", call.facts->name);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuDeviceGetUuid(Uuid* uuid, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  return UuidBytes(call.facts->uuid, uuid);
}
CUDA_ALIAS(cuDeviceGetUuid_v2, cuDeviceGetUuid)

CUDA_EXPORT Result cuDeviceGetLuid(char*, unsigned*, Device) { return Result::kNotSupported; }

CUDA_EXPORT Result cuDeviceTotalMem_v2(size_t* bytes, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  return Put(bytes, call.facts->memory_bytes - call.facts->reserved_bytes);
}

CUDA_EXPORT Result cuDeviceTotalMem(unsigned* bytes, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  const uint64_t total = call.facts->memory_bytes - call.facts->reserved_bytes;
  return Put(bytes, total > UINT32_MAX ? UINT32_MAX : total);
}

CUDA_EXPORT Result cuDeviceGetAttribute(int* value, int attribute, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  int answer = 0;
  if (!DeviceAttribute(*call.facts, attribute, &answer)) return Result::kInvalidValue;
  return Put(value, answer);
}

CUDA_EXPORT Result cuDeviceGetProperties(DeviceProperties* properties, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  if (properties == nullptr) return Result::kInvalidValue;
  *properties = {1024,
                 {1024, 1024, 64},
                 {2147483647, 65535, 65535},
                 49152,
                 65536,
                 32,
                 2147483647,
                 65536,
                 int(call.facts->clock_sm_max * 1000),
                 512};
  return Result::kSuccess;
}

CUDA_EXPORT Result cuDeviceComputeCapability(int* major, int* minor, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  if (major == nullptr || minor == nullptr) return Result::kInvalidValue;
  *major = int(call.facts->cc_major);
  *minor = int(call.facts->cc_minor);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuDeviceGetPCIBusId(char* id, int length, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  if (id == nullptr || length < 13) return Result::kInvalidValue;
  const sim::PciAddress& pci = call.facts->pci;
  snprintf(id, size_t(length), "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.device, pci.function);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuDeviceGetByPCIBusId(Device* device, const char* id) {
  CUDA_ENTER(Call, call);
  unsigned domain = 0, bus = 0, slot = 0;
  if (device == nullptr || id == nullptr) return Result::kInvalidValue;
  if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (sscanf(id, "%x:%x", &bus, &slot) != 2) return Result::kInvalidValue;
  }
  for (int i = 0; i < call->device_count(); ++i) {
    const sim::PciAddress& pci = call->FactsOf(i).pci;
    if (pci.domain == domain && pci.bus == bus && pci.device == slot) return Put(device, i);
  }
  return Result::kInvalidDevice;
}

CUDA_EXPORT Result cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  CUDA_ENTER(DeviceCall, call, device);
  if (!call->IsDevice(peer)) return Result::kInvalidDevice;
  // Peers over PCIe need one root complex; NVLink has no such limit.
  const uint32_t gpu = call->GpuOf(peer);
  const bool linked = HasNvLink(*call.facts, gpu) || call.facts->pcie_level[gpu] <= 30;
  return Put(can, device != peer && linked);
}

CUDA_EXPORT Result cuDeviceGetP2PAttribute(int* value, int attribute, Device source,
                                           Device destination) {
  CUDA_ENTER(DeviceCall, call, source);
  if (!call->IsDevice(destination) || source == destination) return Result::kInvalidDevice;
  const uint32_t gpu = call->GpuOf(destination);
  const bool nvlink = HasNvLink(*call.facts, gpu);
  switch (attribute) {
    case kP2pPerformanceRank:
      return Put(value, nvlink ? 0 : 1);
    case kP2pAccess:
      return Put(value, nvlink || call.facts->pcie_level[gpu] <= 30);
    case kP2pNativeAtomic:
      return Put(value, nvlink);
    default:
      return attribute >= 1 && attribute <= 5 ? Put(value, 0) : Result::kInvalidValue;
  }
}

CUDA_EXPORT Result cuDeviceGetDefaultMemPool(MemPool* pool, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  return Put(pool, call->DefaultPoolOf(device));
}

CUDA_EXPORT Result cuDeviceGetMemPool(MemPool* pool, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  return Put(pool, call->PoolOf(device));
}

CUDA_EXPORT Result cuDeviceSetMemPool(Device device, MemPool pool) {
  CUDA_ENTER(DeviceCall, call, device);
  const bool known = pool == call->DefaultPoolOf(device) || call->created_pools().contains(pool);
  if (!known || pool->device != device || pool->imported) return Result::kInvalidValue;
  call->SetPool(device, pool);
  return Result::kSuccess;
}

// CUDA 13: default pools by location. Pools of host and managed memory are not implemented.
CUDA_EXPORT Result cuMemGetDefaultMemPool(MemPool* pool, const MemLocation* location, int type) {
  if (!IsDevicePool(location, type)) return Result(ReportUnimplemented("cuMemGetDefaultMemPool"));
  return cuDeviceGetDefaultMemPool(pool, location->id);
}
CUDA_EXPORT Result cuMemGetMemPool(MemPool* pool, const MemLocation* location, int type) {
  if (!IsDevicePool(location, type)) return Result(ReportUnimplemented("cuMemGetMemPool"));
  return cuDeviceGetMemPool(pool, location->id);
}
CUDA_EXPORT Result cuMemSetMemPool(const MemLocation* location, int type, MemPool pool) {
  if (!IsDevicePool(location, type)) return Result(ReportUnimplemented("cuMemSetMemPool"));
  return cuDeviceSetMemPool(location->id, pool);
}

CUDA_EXPORT Result cuDeviceGetExecAffinitySupport(int* supported, int, Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  return Put(supported, 0);
}

}  // namespace tessera::cuda
