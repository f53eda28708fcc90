// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/probe.h"

#include <utility>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::gpu {
namespace {

constexpr int kMaxGpus = 64;
constexpr int64_t kMaxNumaNode = 1 << 20;

bool NoSuchIndex(Code code) { return code == Code::kInvalidArgument || code == Code::kNotFound; }

Result<int> CountByHandles(Nvml& nvml, NvmlCalls* calls) {
  int count = 0;
  for (; count < kMaxGpus; ++count) {
    const auto handle = calls->Call(nvml, NvmlCall::kHandleByIndex, &Nvml::HandleByIndex, count);
    if (handle.ok()) continue;
    if (handle.status().code() == Code::kFailedPrecondition) return handle.status();
    if (NoSuchIndex(handle.status().code())) break;
  }
  return count;
}

// Stores the answer, or the first failure in `status`. An unsupported query is not a failure.
template <typename T, typename Field>
void StoreAnswer(Result<T> answer, Field* field, Status* status) {
  if (answer.ok()) {
    *field = std::move(*answer);
  } else if (answer.status().code() != Code::kUnimplemented && status->ok()) {
    *status = answer.status();
  }
}

void Describe(Nvml& nvml, NvmlCalls* calls, IdentityReport* report) {
  const NvmlDevice handle = report->handle;
  device::Gpu& gpu = report->gpu;
  StoreAnswer(calls->Call(nvml, NvmlCall::kName, &Nvml::Name, handle), &gpu.model, &report->status);
  const auto memory = calls->Call(nvml, NvmlCall::kMemoryInfo, &Nvml::TotalMemory, handle);
  report->supports_memory_info = memory.status().code() != Code::kUnimplemented;
  StoreAnswer(memory, &gpu.memory, &report->status);
  StoreAnswer(calls->Call(nvml, NvmlCall::kComputeCapability, &Nvml::Capability, handle),
              &gpu.compute_capability, &report->status);
  const auto mig = calls->Call(nvml, NvmlCall::kMigMode, &Nvml::MigEnabled, handle);
  gpu.mig_capable = mig.ok();
  // MIG counts as off if the GPU does not support MIG or if only this query fails.
  report->mig = mig.value_or(false);
  const auto fabric = calls->Call(nvml, NvmlCall::kFabricInfo, &Nvml::Fabric, handle);
  report->supports_fabric_info = fabric.ok();
  gpu.fabric = fabric.value_or(std::nullopt);
}

}  // namespace

void OpenSession(const std::string& proc_root, NvmlCalls* calls, SessionReport* report) {
  Nvml& nvml = *report->nvml;
  report->status = calls->Call(nvml, NvmlCall::kInit, &Nvml::Init);
  if (!report->status.ok()) return;
  const auto version = calls->Call(nvml, NvmlCall::kDriverVersion, &Nvml::DriverVersion);
  if (!version.ok()) report->notes.push_back(version.status().message());
  report->driver_version = version.value_or("");
  const auto cuda = calls->Call(nvml, NvmlCall::kCudaVersion, &Nvml::CudaVersion);
  if (!cuda.ok()) report->notes.push_back(cuda.status().message());
  report->cuda_version = cuda.value_or(0);
  Result<int> count = calls->Call(nvml, NvmlCall::kDeviceCount, &Nvml::DeviceCount);
  if (!count.ok() && count.status().code() != Code::kFailedPrecondition) {
    report->notes.push_back(count.status().message());
    count = CountByHandles(nvml, calls);
  }
  report->status = count.status();
  if (!count.ok()) {
    (void)calls->Call(nvml, NvmlCall::kShutdown, &Nvml::Shutdown);
    return;
  }
  report->count = *count;
  report->proc_gpus = oci::ReadProcGpus(proc_root).value_or({});
  std::erase_if(report->proc_gpus, [](const oci::ProcGpu& gpu) { return !gpu.HasUuid(); });
}

std::optional<int> ReadNumaNode(const std::string& sys_root, const std::string& pci_bus_id) {
  const Result<std::string> text =
      ReadFile(fmt::format("{}/bus/pci/devices/{}/numa_node", sys_root, pci_bus_id), 64);
  const Result<int64_t> node = ParseInt(Trim(text.value_or("")));
  // -1 means that the machine does not report it (Documentation/ABI/testing/sysfs-bus-pci).
  if (!node.ok() || *node < 0 || *node > kMaxNumaNode) return std::nullopt;
  return static_cast<int>(*node);
}

void IdentifyGpu(Nvml& nvml, int index, const std::string& sys_root, NvmlCalls* calls,
                 IdentityReport* report) {
  device::Gpu& gpu = report->gpu;
  gpu.index = index;
  const auto handle = calls->Call(nvml, NvmlCall::kHandleByIndex, &Nvml::HandleByIndex, index);
  report->status = handle.status();
  if (!handle.ok()) return;
  report->handle = *handle;
  const auto uuid = calls->Call(nvml, NvmlCall::kUuid, &Nvml::Uuid, report->handle);
  report->status = uuid.status();
  report->identified = uuid.ok() && !uuid->empty();
  gpu.uuid = uuid.value_or("");
  const auto minor = calls->Call(nvml, NvmlCall::kMinorNumber, &Nvml::MinorNumber, report->handle);
  if (minor.ok()) gpu.minor = *minor;
  // Without a minor number there is no /dev/nvidiaN to give to containers.
  if (report->status.ok()) report->status = minor.status();
  StoreAnswer(calls->Call(nvml, NvmlCall::kPciInfo, &Nvml::PciBusId, report->handle),
              &gpu.pci_bus_id, &report->status);
  if (!gpu.pci_bus_id.empty()) gpu.numa_node = ReadNumaNode(sys_root, gpu.pci_bus_id);
  Describe(nvml, calls, report);
}

void PollGpu(Nvml& nvml, NvmlDevice handle, bool poll_memory, bool poll_fabric, NvmlCalls* calls,
             PollReport* report) {
  report->status =
      poll_memory ? calls->Call(nvml, NvmlCall::kMemoryInfo, &Nvml::TotalMemory, handle).status()
                  : calls->Call(nvml, NvmlCall::kUuid, &Nvml::Uuid, handle).status();
  if (!report->status.ok()) return;
  // Assumes no requested action if the driver does not support this field or if only this query
  // fails.
  const auto recovery = calls->Call(nvml, NvmlCall::kRecoveryAction, &Nvml::Recovery, handle);
  report->supports_recovery = recovery.ok();
  report->recovery = recovery.value_or(RecoveryAction::kNone);
  report->mig = calls->Call(nvml, NvmlCall::kMigMode, &Nvml::MigEnabled, handle).value_or(false);
  if (!poll_fabric) return;
  const auto clique = calls->Call(nvml, NvmlCall::kFabricInfo, &Nvml::Fabric, handle);
  report->has_fabric_answer = clique.ok();
  report->fabric = clique.value_or(std::nullopt);
}

namespace {

void ReadNvLinks(Nvml& nvml, NvmlDevice handle, NvmlCalls* calls, LinkReport* report) {
  const auto fail = [&](const Status& status) {
    if (report->problem.empty()) report->problem = status.message();
  };
  for (int link = 0; link < device::kMaxNvLinks; ++link) {
    // An invalid link number ends the list and is not counted as an error.
    calls->Enter(NvmlCall::kNvLinkState);
    const Result<bool> active = nvml.NvLinkActive(handle, link);
    const Code code = active.status().code();
    if (code == Code::kUnimplemented || NoSuchIndex(code)) return;
    if (!active.ok()) {
      calls->AddError(NvmlCall::kNvLinkState, active.status());
      return fail(active.status());
    }
    if (!*active) continue;
    const auto peer =
        calls->Call(nvml, NvmlCall::kNvLinkRemoteType, &Nvml::NvLinkRemoteType, handle, link);
    if (peer.ok() && *peer == NvLinkRemoteKind::kSwitch) {
      ++report->switch_links;
      continue;
    }
    if (peer.ok() && *peer == NvLinkRemoteKind::kOther) continue;
    // Drivers older than NVSwitch do not support this query; only the address is used.
    if (!peer.ok() && peer.status().code() != Code::kUnimplemented) fail(peer.status());
    const auto address =
        calls->Call(nvml, NvmlCall::kNvLinkRemotePciInfo, &Nvml::NvLinkRemoteBusId, handle, link);
    if (address.ok()) {
      ++report->nvlinks[*address];
    } else {
      fail(address.status());
    }
  }
}

}  // namespace

void ReadLinks(Nvml& nvml, NvmlDevice handle, const std::vector<PeerGpu>& peers, NvmlCalls* calls,
               LinkReport* report) {
  for (const PeerGpu& peer : peers) {
    const auto level =
        calls->Call(nvml, NvmlCall::kCommonAncestor, &Nvml::CommonAncestor, handle, peer.handle);
    if (level.ok()) {
      report->levels[peer.uuid] = *level;
    } else if (report->problem.empty()) {
      report->problem = level.status().message();
    }
  }
  ReadNvLinks(nvml, handle, calls, report);
}

}  // namespace tessera::gpu
