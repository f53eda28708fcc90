// SPDX-License-Identifier: Apache-2.0
// Implements Nvml with a loaded library. Included only in src/gpu; nvml_library.h loads it. The
// functions are in nvml_identity.cc (system, identity, links), nvml_processes.cc (processes, XIDs)
// and nvml_metrics.cc.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/gpu/nvml.h"
#include "src/gpu/nvml_symbols.h"

namespace tessera::gpu {

class NvmlLibrary final : public Nvml {
 public:
  // `handle` of dlopen, which the object closes.
  explicit NvmlLibrary(void* handle) : symbols_(handle) {}

  Status Init() override;
  Status Shutdown() override;

  Result<std::string> DriverVersion() override;
  Result<int> CudaVersion() override;
  Result<int> DeviceCount() override;
  Result<NvmlDevice> HandleByIndex(int index) override;

  Result<std::string> Uuid(NvmlDevice device) override;
  Result<std::string> Name(NvmlDevice device) override;
  Result<int> MinorNumber(NvmlDevice device) override;
  Result<std::string> PciBusId(NvmlDevice device) override;
  Result<Bytes> TotalMemory(NvmlDevice device) override;
  Result<device::ComputeCapability> Capability(NvmlDevice device) override;
  Result<RecoveryAction> Recovery(NvmlDevice device) override;
  Result<bool> MigEnabled(NvmlDevice device) override;
  Result<std::optional<device::FabricClique>> Fabric(NvmlDevice device) override;

  Result<device::PcieLevel> CommonAncestor(NvmlDevice a, NvmlDevice b) override;
  Result<bool> NvLinkActive(NvmlDevice device, int link) override;
  Result<NvLinkRemoteKind> NvLinkRemoteType(NvmlDevice device, int link) override;
  Result<std::string> NvLinkRemoteBusId(NvmlDevice device, int link) override;

  Result<NvmlEventSet> EventSetCreate() override;
  Status EventSetFree(NvmlEventSet set) override;
  Status RegisterXidEvents(NvmlDevice device, NvmlEventSet set) override;
  Result<std::vector<GpuProcess>> ComputeProcesses(NvmlDevice device) override;
  Result<std::vector<ProcessLoad>> ProcessLoads(NvmlDevice device) override;
  Result<XidEvent> WaitForXid(NvmlEventSet set, Duration timeout) override;

  Result<int> ClockMhz(NvmlDevice device, ClockDomain domain) override;
  Result<int> TemperatureCelsius(NvmlDevice device) override;
  Result<int> PowerMilliwatts(NvmlDevice device) override;
  Result<UtilizationRates> Utilization(NvmlDevice device) override;
  Result<int> EncoderPercent(NvmlDevice device) override;
  Result<int> DecoderPercent(NvmlDevice device) override;
  Result<MemoryUse> Memory(NvmlDevice device) override;
  Result<int64_t> PcieReplays(NvmlDevice device) override;
  Result<std::vector<std::optional<double>>> FieldValues(
      NvmlDevice device, std::span<const FieldQuery> queries) override;
  Result<std::unique_ptr<GpmSample>> TakeGpmSample(NvmlDevice device) override;
  Result<std::vector<std::optional<double>>> GpmMetrics(const GpmSample& earlier,
                                                        const GpmSample& later,
                                                        std::span<const unsigned> metrics) override;
  Result<std::string> Serial(NvmlDevice device) override;
  Result<std::string> VbiosVersion(NvmlDevice device) override;
  Result<std::string> NvmlVersion() override;

 private:
  NvmlSymbols symbols_;
};

}  // namespace tessera::gpu
