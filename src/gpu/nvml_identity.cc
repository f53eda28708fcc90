// SPDX-License-Identifier: Apache-2.0
// The system, the identity of a GPU, its state and its links.
#include <algorithm>
#include <utility>

#include "src/gpu/nvml_library_impl.h"

namespace tessera::gpu {
namespace {

// "0000:07:00.0" as in sysfs. NVML's own text has a domain of eight digits, and sysfs has four
// unless the domain needs more. NVML reports no function number: a GPU is function 0 of its device.
std::string SysfsBusId(const nvml::PciInfo& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

device::PcieLevel LevelOf(unsigned level) {
  switch (level) {
    case nvml::kTopologyInternal:
      return device::PcieLevel::kSameBoard;
    case nvml::kTopologySingle:
      return device::PcieLevel::kSingleSwitch;
    case nvml::kTopologyMultiple:
      return device::PcieLevel::kMultiSwitch;
    case nvml::kTopologyHostBridge:
      return device::PcieLevel::kHostBridge;
    case nvml::kTopologyNode:
      return device::PcieLevel::kNode;
    case nvml::kTopologySystem:
      return device::PcieLevel::kSystem;
    default:
      return device::PcieLevel::kUnknown;
  }
}

}  // namespace

Status NvmlLibrary::Init() { return Call(NvmlCall::kInit, symbols_.init); }

Status NvmlLibrary::Shutdown() { return Call(NvmlCall::kShutdown, symbols_.shutdown); }

Result<std::string> NvmlLibrary::DriverVersion() {
  return ReadText<nvml::kVersionBufferSize>(NvmlCall::kDriverVersion, symbols_.driver_version);
}

Result<int> NvmlLibrary::CudaVersion() {
  int version = 0;
  RETURN_IF_ERROR(Call(NvmlCall::kCudaVersion, symbols_.cuda_version, &version));
  return version;
}

Result<std::string> NvmlLibrary::NvmlVersion() {
  return ReadText<nvml::kVersionBufferSize>(NvmlCall::kNvmlVersion, symbols_.nvml_version);
}

Result<int> NvmlLibrary::DeviceCount() {
  return ReadNumber(NvmlCall::kDeviceCount, symbols_.count);
}

Result<NvmlDevice> NvmlLibrary::HandleByIndex(int index) {
  nvml::Device device = nullptr;
  RETURN_IF_ERROR(Call(NvmlCall::kHandleByIndex, symbols_.handle_by_index,
                       static_cast<unsigned>(index), &device));
  return static_cast<NvmlDevice>(device);
}

Result<std::string> NvmlLibrary::Uuid(NvmlDevice device) {
  return ReadText<nvml::kUuidBufferSize>(NvmlCall::kUuid, symbols_.uuid, Handle(device));
}

Result<std::string> NvmlLibrary::Name(NvmlDevice device) {
  return ReadText<nvml::kNameBufferSize>(NvmlCall::kName, symbols_.name, Handle(device));
}

Result<std::string> NvmlLibrary::Serial(NvmlDevice device) {
  return ReadText<nvml::kSerialBufferSize>(NvmlCall::kSerial, symbols_.serial, Handle(device));
}

Result<std::string> NvmlLibrary::VbiosVersion(NvmlDevice device) {
  return ReadText<nvml::kVersionBufferSize>(NvmlCall::kVbiosVersion, symbols_.vbios_version,
                                            Handle(device));
}

Result<int> NvmlLibrary::MinorNumber(NvmlDevice device) {
  return ReadNumber(NvmlCall::kMinorNumber, symbols_.minor, Handle(device));
}

Result<std::string> NvmlLibrary::PciBusId(NvmlDevice device) {
  nvml::PciInfo pci{};
  RETURN_IF_ERROR(Call(NvmlCall::kPciInfo, symbols_.pci_info, Handle(device), &pci));
  return SysfsBusId(pci);
}

Result<Bytes> NvmlLibrary::TotalMemory(NvmlDevice device) {
  nvml::Memory memory{};
  RETURN_IF_ERROR(Call(NvmlCall::kMemoryInfo, symbols_.memory_info, Handle(device), &memory));
  return Bytes(static_cast<int64_t>(memory.total));
}

Result<device::ComputeCapability> NvmlLibrary::Capability(NvmlDevice device) {
  device::ComputeCapability capability;
  RETURN_IF_ERROR(Call(NvmlCall::kComputeCapability, symbols_.capability, Handle(device),
                       &capability.major, &capability.minor));
  return capability;
}

Result<bool> NvmlLibrary::MigEnabled(NvmlDevice device) {
  unsigned current = 0;
  unsigned pending = 0;
  RETURN_IF_ERROR(Call(NvmlCall::kMigMode, symbols_.mig_mode, Handle(device), &current, &pending));
  return current == nvml::kFeatureEnabled;
}

Result<RecoveryAction> NvmlLibrary::Recovery(NvmlDevice device) {
  nvml::FieldValue field{.field_id = nvml::kFieldRecoveryAction};
  RETURN_IF_ERROR(
      Call(NvmlCall::kRecoveryAction, symbols_.recovery_action, Handle(device), 1, &field));
  RETURN_IF_ERROR(NvmlStatus(NvmlCall::kRecoveryAction, static_cast<int>(field.result)));
  // A newer driver may report other values.
  if (field.value.ui > nvml::kRecoveryDrainAndReset) return RecoveryAction::kResetGpu;
  return static_cast<RecoveryAction>(field.value.ui);
}

Result<std::optional<device::FabricClique>> NvmlLibrary::Fabric(NvmlDevice device) {
  nvml::FabricInfo info{};
  RETURN_IF_ERROR(Call(NvmlCall::kFabricInfo, symbols_.fabric_info, Handle(device), &info));
  const auto& uuid = info.cluster_uuid;
  const bool has_cluster =
      std::any_of(std::begin(uuid), std::end(uuid), [](unsigned char byte) { return byte != 0; });
  if (info.state == nvml::kFabricNotSupported) {
    return NvmlStatus(NvmlCall::kFabricInfo, static_cast<int>(nvml::Return::kNotSupported));
  }
  // A completed registration without a cluster UUID belongs to a single node, not to a fabric.
  if (info.state != nvml::kFabricCompleted || !has_cluster) {
    return std::optional<device::FabricClique>();
  }
  RETURN_IF_ERROR(NvmlStatus(NvmlCall::kFabricInfo, static_cast<int>(info.status)));
  std::string text;
  for (size_t i = 0; i < std::size(uuid); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return std::optional(device::FabricClique{text, info.clique_id});
}

Result<device::PcieLevel> NvmlLibrary::CommonAncestor(NvmlDevice a, NvmlDevice b) {
  unsigned level = ~0u;
  RETURN_IF_ERROR(
      Call(NvmlCall::kCommonAncestor, symbols_.common_ancestor, Handle(a), Handle(b), &level));
  return LevelOf(level);
}

Result<bool> NvmlLibrary::NvLinkActive(NvmlDevice device, int link) {
  ASSIGN_OR_RETURN(const int active, ReadNumber(NvmlCall::kNvLinkState, symbols_.link_state,
                                                Handle(device), static_cast<unsigned>(link)));
  return active == nvml::kFeatureEnabled;
}

Result<NvLinkRemoteKind> NvmlLibrary::NvLinkRemoteType(NvmlDevice device, int link) {
  unsigned type = nvml::kNvLinkUnknown;
  RETURN_IF_ERROR(Call(NvmlCall::kNvLinkRemoteType, symbols_.link_remote_type, Handle(device),
                       static_cast<unsigned>(link), &type));
  if (type == nvml::kNvLinkSwitch) return NvLinkRemoteKind::kSwitch;
  return type == nvml::kNvLinkGpu ? NvLinkRemoteKind::kGpu : NvLinkRemoteKind::kOther;
}

Result<std::string> NvmlLibrary::NvLinkRemoteBusId(NvmlDevice device, int link) {
  nvml::PciInfo pci{};
  RETURN_IF_ERROR(Call(NvmlCall::kNvLinkRemotePciInfo, symbols_.link_remote_pci, Handle(device),
                       static_cast<unsigned>(link), &pci));
  return SysfsBusId(pci);
}

}  // namespace tessera::gpu
