// SPDX-License-Identifier: Apache-2.0
// The identity of a GPU: values that do not change while the driver is loaded.
#include <cstdio>
#include <string>

#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

constexpr unsigned kBusPcie = 2;

// CUDA cores of an SM, by compute capability.
unsigned CoresPerSm(const sim::GpuFacts& facts) {
  if (facts.cc_major == 8 && facts.cc_minor == 0) return 64;
  return facts.cc_major < 8 ? 64 : 128;
}

}  // namespace

Return nvmlDeviceGetName(Device device, char* name, unsigned length) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  if (gpu.instance_plus_1() == 0) return CopyText(gpu.facts().name, name, length);
  const std::string profile =
      gpu.state().InstanceProfile(gpu.gpu_index(), gpu.instance_plus_1() - 1);
  char text[128];
  std::snprintf(text, sizeof(text), "%s MIG %s", gpu.facts().name, profile.c_str());
  return CopyText(text, name, length);
}

Return nvmlDeviceGetBrand(Device device, unsigned* brand) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  return Put(brand, gpu.facts().brand);
}

Return nvmlDeviceGetIndex(Device device, unsigned* index) {
  NVML_ENTER_CACHED(gpu, device);
  NVML_REQUIRE(index != nullptr);
  if (gpu.instance_plus_1() != 0) {
    // The position among the MIG devices of its GPU, as in nvmlDeviceGetMigDeviceHandleByIndex.
    *index = 0;
    while (*index < sim::kMaxInstances &&
           gpu.state().InstanceByRank(gpu.gpu_index(), *index) != gpu.instance_plus_1() - 1) {
      ++*index;
    }
    return Return::kSuccess;
  }
  const NodeCall call(__func__, FaultCheck::kLater);
  for (std::uint32_t i = 0; i < call.visible().count; ++i) {
    if (call.visible().gpus[i] == gpu.gpu_index()) *index = i;
  }
  return Return::kSuccess;
}

NVML_TEXT(nvmlDeviceGetSerial, gpu.facts().serial)
NVML_VALUE(nvmlDeviceGetModuleId, unsigned, gpu.gpu_index())

Return nvmlDeviceGetUUID(Device device, char* uuid, unsigned length) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  if (gpu.instance_plus_1() == 0) return CopyText(gpu.facts().uuid, uuid, length);
  return CopyText(gpu.state().InstanceUuid(gpu.gpu_index(), gpu.instance_plus_1() - 1).c_str(),
                  uuid, length);
}

NVML_VALUE(nvmlDeviceGetMinorNumber, unsigned, gpu.facts().minor)
NVML_TEXT(nvmlDeviceGetBoardPartNumber, gpu.facts().board_part_number)

Return nvmlDeviceGetBoardId(Device device, unsigned* id) {
  NVML_ENTER_DEVICE(gpu, device);
  const sim::PciAddress& pci = gpu.facts().pci;
  return Put(id, pci.domain << 16 | pci.bus << 8 | pci.device);
}

NVML_VALUE(nvmlDeviceGetMultiGpuBoard, unsigned, 0)

// The infoROM has four objects (OEM, ECC, power, DEN). These boards report the versions of OEM and
// ECC.
Return nvmlDeviceGetInforomVersion(Device device, unsigned object, char* version, unsigned length) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(version != nullptr && object < 4);
  if (object > 1) return Return::kNotSupported;
  return CopyText(object == 0 ? gpu.facts().inforom_oem : gpu.facts().inforom_ecc, version, length);
}

NVML_TEXT(nvmlDeviceGetInforomImageVersion, gpu.facts().inforom_image)

// The checksum derives from the image's version.
Return nvmlDeviceGetInforomConfigurationChecksum(Device device, unsigned* checksum) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(checksum != nullptr);
  if (gpu.facts().inforom_image[0] == '\0') return Return::kNotSupported;
  unsigned sum = 2166136261U;
  for (const char* c = gpu.facts().inforom_image; *c != '\0'; ++c) {
    sum = (sum ^ static_cast<unsigned char>(*c)) * 16777619U;
  }
  return Put(checksum, sum);
}

Return nvmlDeviceValidateInforom(Device device) {
  NVML_ENTER_DEVICE(gpu, device);
  return gpu.facts().inforom_image[0] != '\0' ? Return::kSuccess : Return::kNotSupported;
}

NVML_TEXT(nvmlDeviceGetVbiosVersion, gpu.facts().vbios)

Return nvmlDeviceGetGspFirmwareVersion(Device device, char* version) {
  NVML_ENTER_DEVICE(gpu, device);
  return CopyText(gpu.state().file().driver_version, version, kVersionBufferSize);
}

Return nvmlDeviceGetGspFirmwareMode(Device device, unsigned* enabled, unsigned* standard) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(enabled != nullptr && standard != nullptr);
  *enabled = kFeatureEnabled;
  *standard = kFeatureEnabled;
  return Return::kSuccess;
}

Return nvmlDeviceGetArchitecture(Device device, unsigned* architecture) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  return Put(architecture, gpu.facts().architecture);
}

Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  NVML_REQUIRE(major != nullptr && minor != nullptr);
  *major = static_cast<int>(gpu.facts().cc_major);
  *minor = static_cast<int>(gpu.facts().cc_minor);
  return Return::kSuccess;
}

NVML_VALUE(nvmlDeviceGetNumGpuCores, unsigned, CoresPerSm(gpu.facts()) * gpu.facts().sm_count)
NVML_VALUE(nvmlDeviceGetMemoryBusWidth, unsigned, gpu.facts().memory_bus_bits)
NVML_VALUE(nvmlDeviceGetBusType, unsigned, kBusPcie)
// The number in /proc/driver/nvidia/gpus/<address>/information.
NVML_VALUE(nvmlDeviceGetIrqNum, unsigned, 100 + gpu.facts().minor)

}  // namespace tessera::nvml
