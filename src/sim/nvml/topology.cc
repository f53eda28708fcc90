// SPDX-License-Identifier: Apache-2.0
// The position of a GPU: PCI, NUMA, topology, NVLink, fabric.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "src/sim/nvml/affinity.h"
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

void FillPci(const sim::PciAddress& address, PciInfo* pci) {
  *pci = {};
  pci->domain = address.domain;
  pci->bus = address.bus;
  pci->device = address.device;
  std::snprintf(pci->bus_id_legacy, sizeof(pci->bus_id_legacy), "%04X:%02X:%02X.0",
                address.domain & 0xFFFF, address.bus & 0xFF, address.device & 0xFF);
  std::snprintf(pci->bus_id, sizeof(pci->bus_id), "%08X:%02X:%02X.0", address.domain,
                address.bus & 0xFF, address.device & 0xFF);
}

Return GetPciInfo(const char* function, Device device, PciInfo* pci) {
  const GpuCall gpu(function, device, WhenLost::kAnswer);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(pci != nullptr);
  FillPci(gpu.facts().pci, pci);
  pci->pci_device_id = gpu.facts().pci_device_id;
  pci->pci_subsystem_id = gpu.facts().pci_subsystem_id;
  return Return::kSuccess;
}

// Finds the link `number`. A GPU without NVLink does not support the call.
Return FindLink(const GpuCall& gpu, unsigned number, const sim::NvLink** link) {
  const unsigned count = gpu.facts().nvlink_count;
  if (count == 0) return Return::kNotSupported;
  NVML_REQUIRE(number < count && number < sim::kMaxLinks);
  *link = &gpu.facts().links[number];
  return Return::kSuccess;
}

Return FindActiveLink(const GpuCall& gpu, unsigned number, const sim::NvLink** link) {
  const Return result = FindLink(gpu, number, link);
  if (result != Return::kSuccess) return result;
  return (*link)->active != 0 ? Return::kSuccess : Return::kInvalidArgument;
}

Return GetRemotePciInfo(const char* function, Device device, unsigned number, PciInfo* pci) {
  const GpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(pci != nullptr);
  const sim::NvLink* link = nullptr;
  const Return result = FindActiveLink(gpu, number, &link);
  if (result == Return::kSuccess) FillPci(link->remote, pci);
  return result;
}

bool HasSwitch(const sim::GpuFacts& facts) {
  for (const sim::NvLink& link : facts.links) {
    if (link.active != 0 && link.remote_type == kNvLinkSwitch) return true;
  }
  return false;
}

bool JoinedByNvLink(const GpuCall& a, const GpuCall& b) {
  for (const sim::NvLink& link : a.facts().links) {
    if (link.active != 0 && link.remote_type == kNvLinkGpu &&
        link.remote_gpu == static_cast<std::int32_t>(b.gpu_index())) {
      return true;
    }
  }
  return HasSwitch(a.facts()) && HasSwitch(b.facts());
}

unsigned LevelBetween(const GpuCall& a, const GpuCall& b) {
  return a.facts().pcie_level[b.gpu_index()];
}

Return GetCpuAffinity(const char* function, Device device, unsigned words, unsigned long* cpus) {
  const GpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(words > 0 && cpus != nullptr);
  std::memset(cpus, 0, words * sizeof(*cpus));
  const CpuRange range = CpusOf(gpu.state(), gpu.gpu_index());
  for (unsigned cpu = range.first; cpu < range.end && cpu / 64 < words; ++cpu) {
    cpus[cpu / 64] |= 1UL << (cpu % 64);
  }
  return Return::kSuccess;
}

}  // namespace

CpuRange CpusOf(const sim::State& state, std::uint32_t gpu) {
  const long configured = sysconf(_SC_NPROCESSORS_CONF);
  const unsigned cpus = configured > 0 ? static_cast<unsigned>(configured) : 1;
  std::int32_t last_node = 0;
  for (std::uint32_t i = 0; i < state.gpu_count(); ++i) {
    if (state.facts(i).numa_node > last_node) last_node = state.facts(i).numa_node;
  }
  const auto nodes = static_cast<unsigned>(last_node) + 1;
  const std::int32_t node = state.facts(gpu).numa_node;
  if (node < 0 || cpus < nodes) return {0, cpus};
  const unsigned block = cpus / nodes;
  const unsigned first = static_cast<unsigned>(node) * block;
  return {first, static_cast<unsigned>(node) + 1 == nodes ? cpus : first + block};
}

Return nvmlDeviceGetPciInfo(Device device, PciInfo* pci) {
  return GetPciInfo(__func__, device, pci);
}
Return nvmlDeviceGetPciInfo_v2(Device device, PciInfo* pci) {
  return GetPciInfo(__func__, device, pci);
}
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
  return GetPciInfo(__func__, device, pci);
}

Return nvmlDeviceGetPciInfoExt(Device device, PciInfoExt* pci) {
  NVML_ENTER_CACHED(gpu, device);
  NVML_REQUIRE(pci != nullptr);
  if (pci->version != VersionOf<PciInfoExt>(1)) return Return::kArgumentVersionMismatch;
  PciInfo plain;
  FillPci(gpu.facts().pci, &plain);
  pci->domain = plain.domain;
  pci->bus = plain.bus;
  pci->device = plain.device;
  pci->pci_device_id = gpu.facts().pci_device_id;
  pci->pci_subsystem_id = gpu.facts().pci_subsystem_id;
  pci->base_class = gpu.facts().pci_class >> 16;
  pci->sub_class = (gpu.facts().pci_class >> 8) & 0xFF;
  std::memcpy(pci->bus_id, plain.bus_id, sizeof(pci->bus_id));
  return Return::kSuccess;
}

Return nvmlDeviceGetMemoryAffinity(Device device, unsigned words, unsigned long* nodes,
                                   unsigned scope) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(words > 0 && nodes != nullptr && scope <= 1);
  const std::int32_t node = gpu.facts().numa_node;
  if (node < 0 || static_cast<unsigned>(node) / 64 >= words) return Return::kNotSupported;
  std::memset(nodes, 0, words * sizeof(*nodes));
  nodes[node / 64] |= 1UL << (node % 64);
  return Return::kSuccess;
}

Return nvmlDeviceGetCpuAffinityWithinScope(Device device, unsigned words, unsigned long* cpus,
                                           unsigned scope) {
  if (scope > 1) cpus = nullptr;
  return GetCpuAffinity(__func__, device, words, cpus);
}

Return nvmlDeviceGetCpuAffinity(Device device, unsigned words, unsigned long* cpus) {
  return GetCpuAffinity(__func__, device, words, cpus);
}

// Only GPUs whose memory is a NUMA node of the host (Grace) support this call. No simulated node
// has such a GPU.
Return nvmlDeviceGetNumaNodeId(Device device, unsigned* node) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(node != nullptr);
  return Return::kNotSupported;
}

Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, unsigned* level) {
  NVML_ENTER_CACHED(first, a);
  const GpuCall second(b);
  NVML_REQUIRE(second.result() == Return::kSuccess);
  return Put(level, LevelBetween(first, second));
}

Return nvmlDeviceGetTopologyNearestGpus(Device device, unsigned level, unsigned* count,
                                        Device* devices) {
  NVML_ENTER_CACHED(gpu, device);
  NVML_REQUIRE(count != nullptr && (*count == 0 || devices != nullptr));
  const NodeCall call(__func__, FaultCheck::kLater);
  const unsigned capacity = *count;
  *count = 0;
  for (std::uint32_t i = 0; i < call.visible().count; ++i) {
    const std::uint32_t other = call.visible().gpus[i];
    if (other == gpu.gpu_index() || gpu.facts().pcie_level[other] != level) continue;
    if (capacity > 0 && *count == capacity) break;
    if (capacity > 0) devices[*count] = HandleOf(other);
    ++*count;
  }
  return Return::kSuccess;
}

Return nvmlDeviceGetP2PStatus(Device a, Device b, unsigned index, unsigned* status) {
  NVML_ENTER_CACHED(first, a);
  const GpuCall second(b);
  NVML_REQUIRE(second.result() == Return::kSuccess && index < kP2pIndexes && status != nullptr);
  const bool nvlink = JoinedByNvLink(first, second);
  const bool pcie = LevelBetween(first, second) < kTopologySystem;
  switch (index) {
    case kP2pNvLink:
    case kP2pAtomics:
      *status = nvlink ? kP2pOk : kP2pNotSupported;
      break;
    case kP2pPci:
      *status = pcie ? kP2pOk : kP2pChipsetNotSupported;
      break;
    default:
      *status = nvlink || pcie ? kP2pOk : kP2pChipsetNotSupported;
  }
  return Return::kSuccess;
}

Return nvmlDeviceOnSameBoard(Device a, Device b, int* same) {
  NVML_ENTER_CACHED(first, a);
  const GpuCall second(b);
  NVML_REQUIRE(second.result() == Return::kSuccess);
  return Put(same, first.gpu_index() == second.gpu_index() ? 1 : 0);
}

Return nvmlDeviceGetNvLinkState(Device device, unsigned number, unsigned* active) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(active != nullptr);
  const sim::NvLink* link = nullptr;
  const Return result = FindLink(gpu, number, &link);
  if (result == Return::kSuccess) *active = link->active;
  return result;
}

Return nvmlDeviceGetNvLinkVersion(Device device, unsigned number, unsigned* version) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(version != nullptr);
  const sim::NvLink* link = nullptr;
  const Return result = FindActiveLink(gpu, number, &link);
  if (result == Return::kSuccess) *version = gpu.facts().nvlink_version;
  return result;
}

Return nvmlDeviceGetNvLinkCapability(Device device, unsigned number, unsigned capability,
                                     unsigned* has) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(has != nullptr && capability <= kNvLinkValid);
  const sim::NvLink* link = nullptr;
  const Return result = FindLink(gpu, number, &link);
  if (result != Return::kSuccess) return result;
  // As recorded from A100 and H100: only H100 reports its links as "valid".
  const bool can = capability != kNvLinkValid || gpu.at_least(kArchHopper);
  *has = link->active != 0 && can ? 1 : 0;
  return Return::kSuccess;
}

Return nvmlDeviceGetNvLinkRemotePciInfo(Device device, unsigned link, PciInfo* pci) {
  return GetRemotePciInfo(__func__, device, link, pci);
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo* pci) {
  return GetRemotePciInfo(__func__, device, link, pci);
}

Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned number, unsigned* type) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(type != nullptr);
  const sim::NvLink* link = nullptr;
  const Return result = FindActiveLink(gpu, number, &link);
  if (result == Return::kSuccess) *type = link->remote_type;
  return result;
}

Return nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned number, unsigned counter,
                                       std::uint64_t* value) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(value != nullptr && counter < 5);
  const sim::NvLink* link = nullptr;
  const Return result = FindActiveLink(gpu, number, &link);
  if (result == Return::kSuccess) *value = 0;
  return result;
}

Return nvmlDeviceGetGpuFabricInfo(Device device, FabricInfo* info) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(info != nullptr);
  if (gpu.facts().architecture < kArchHopper) return Return::kNotSupported;
  *info = {};
  std::memcpy(info->cluster_uuid, gpu.facts().fabric_cluster, sizeof(info->cluster_uuid));
  info->clique_id = gpu.facts().fabric_clique;
  info->state = static_cast<unsigned char>(gpu.facts().fabric_state);
  return Return::kSuccess;
}

Return nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfoV3* info) {
  constexpr unsigned kVersion2 = kFabricInfoV2Size | (2U << 24);
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(info != nullptr);
  const bool version3 = info->version == VersionOf<FabricInfoV3>(3);
  if (!version3 && info->version != kVersion2) return Return::kArgumentVersionMismatch;
  if (gpu.facts().architecture < kArchHopper) return Return::kNotSupported;
  std::memcpy(info->cluster_uuid, gpu.facts().fabric_cluster, sizeof(info->cluster_uuid));
  info->status = Return::kSuccess;
  info->clique_id = gpu.facts().fabric_clique;
  info->state = static_cast<unsigned char>(gpu.facts().fabric_state);
  // Healthy: bandwidth, routes, timeouts, configuration.
  info->health_mask = gpu.facts().fabric_state == kFabricCompleted ? kFabricHealthy : 0;
  if (version3) info->health_summary = info->health_mask != 0 ? kFabricSummaryHealthy : 0;
  return Return::kSuccess;
}

}  // namespace tessera::nvml
