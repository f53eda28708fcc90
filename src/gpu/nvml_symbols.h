// SPDX-License-Identifier: Apache-2.0
// The functions of one loaded libnvidia-ml.so.1, and how they are called. Included only in src/gpu.
#pragma once

#include <dlfcn.h>

#include <array>
#include <string>

#include "api/nvml_abi.h"
#include "src/gpu/nvml.h"
#include "src/gpu/nvml_status.h"

namespace tessera::gpu {

// The functions of one loaded library; null if the driver lacks the symbol.
class NvmlSymbols {
 public:
  explicit NvmlSymbols(void* library) : library_(library) {}
  ~NvmlSymbols() { ::dlclose(library_); }
  NvmlSymbols(const NvmlSymbols&) = delete;
  NvmlSymbols& operator=(const NvmlSymbols&) = delete;

 private:
  // An address that converts to any function.
  struct SymbolAddress {
    void* address;
    template <typename Function>
    operator Function() const {  // NOLINT(google-explicit-constructor): typed by the member
      return reinterpret_cast<Function>(address);
    }
  };
  // Drivers add a suffix to the name when a function's structs change. `older` is an earlier name
  // of the function with the same signature.
  SymbolAddress Find(const char* name, const char* older = nullptr) const {
    void* symbol = ::dlsym(library_, name);
    if (symbol == nullptr && older != nullptr) symbol = ::dlsym(library_, older);
    return {symbol};
  }

  void* const library_;  // first, because the members below are looked up in it

 public:
  const nvml::fn::nvmlInit_v2 init = Find("nvmlInit_v2", "nvmlInit");
  const nvml::fn::nvmlShutdown shutdown = Find("nvmlShutdown");
  const nvml::fn::nvmlSystemGetDriverVersion driver_version = Find("nvmlSystemGetDriverVersion");
  const nvml::fn::nvmlSystemGetCudaDriverVersion_v2 cuda_version =
      Find("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion");
  const nvml::fn::nvmlDeviceGetCount_v2 count = Find("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
  const nvml::fn::nvmlDeviceGetHandleByIndex_v2 handle_by_index =
      Find("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex");
  const nvml::fn::nvmlDeviceGetUUID uuid = Find("nvmlDeviceGetUUID");
  const nvml::fn::nvmlDeviceGetMinorNumber minor = Find("nvmlDeviceGetMinorNumber");
  const nvml::fn::nvmlDeviceGetName name = Find("nvmlDeviceGetName");
  const nvml::fn::nvmlDeviceGetPciInfo_v3 pci_info = Find("nvmlDeviceGetPciInfo_v3");
  const nvml::fn::nvmlDeviceGetMemoryInfo memory_info = Find("nvmlDeviceGetMemoryInfo");
  const nvml::fn::nvmlDeviceGetCudaComputeCapability capability =
      Find("nvmlDeviceGetCudaComputeCapability");
  const nvml::fn::nvmlDeviceGetFieldValues field_values = Find("nvmlDeviceGetFieldValues");
  const nvml::fn::nvmlDeviceGetTopologyCommonAncestor common_ancestor =
      Find("nvmlDeviceGetTopologyCommonAncestor");
  const nvml::fn::nvmlDeviceGetNvLinkState link_state = Find("nvmlDeviceGetNvLinkState");
  const nvml::fn::nvmlDeviceGetNvLinkRemoteDeviceType link_remote_type =
      Find("nvmlDeviceGetNvLinkRemoteDeviceType");
  const nvml::fn::nvmlDeviceGetNvLinkRemotePciInfo_v2 link_remote_pci =
      Find("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  const nvml::fn::nvmlEventSetCreate event_set_create = Find("nvmlEventSetCreate");
  const nvml::fn::nvmlEventSetFree event_set_free = Find("nvmlEventSetFree");
  const nvml::fn::nvmlDeviceGetSupportedEventTypes supported_events =
      Find("nvmlDeviceGetSupportedEventTypes");
  const nvml::fn::nvmlDeviceRegisterEvents register_events = Find("nvmlDeviceRegisterEvents");
  const nvml::fn::nvmlEventSetWait_v2 event_set_wait = Find("nvmlEventSetWait_v2");
  const nvml::fn::nvmlDeviceGetComputeRunningProcesses_v3 processes =
      Find("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
  const nvml::fn::nvmlDeviceGetProcessUtilization process_utilization =
      Find("nvmlDeviceGetProcessUtilization");
  const nvml::fn::nvmlDeviceGetMigMode mig_mode = Find("nvmlDeviceGetMigMode");
  const nvml::fn::nvmlDeviceGetGpuFabricInfo fabric_info = Find("nvmlDeviceGetGpuFabricInfo");
  const nvml::fn::nvmlDeviceGetClockInfo clock_info = Find("nvmlDeviceGetClockInfo");
  const nvml::fn::nvmlDeviceGetTemperature temperature = Find("nvmlDeviceGetTemperature");
  const nvml::fn::nvmlDeviceGetPowerUsage power_usage = Find("nvmlDeviceGetPowerUsage");
  const nvml::fn::nvmlDeviceGetUtilizationRates utilization = Find("nvmlDeviceGetUtilizationRates");
  const nvml::fn::nvmlDeviceGetEncoderUtilization encoder_utilization =
      Find("nvmlDeviceGetEncoderUtilization");
  const nvml::fn::nvmlDeviceGetDecoderUtilization decoder_utilization =
      Find("nvmlDeviceGetDecoderUtilization");
  const nvml::fn::nvmlDeviceGetMemoryInfo_v2 memory_info_v2 = Find("nvmlDeviceGetMemoryInfo_v2");
  const nvml::fn::nvmlDeviceGetPcieReplayCounter pcie_replays =
      Find("nvmlDeviceGetPcieReplayCounter");
  const nvml::fn::nvmlGpmQueryDeviceSupport gpm_support = Find("nvmlGpmQueryDeviceSupport");
  const nvml::fn::nvmlGpmSampleAlloc gpm_sample_alloc = Find("nvmlGpmSampleAlloc");
  const nvml::fn::nvmlGpmSampleFree gpm_sample_free = Find("nvmlGpmSampleFree");
  const nvml::fn::nvmlGpmSampleGet gpm_sample_get = Find("nvmlGpmSampleGet");
  const nvml::fn::nvmlGpmMetricsGet gpm_metrics = Find("nvmlGpmMetricsGet");
  const nvml::fn::nvmlDeviceGetSerial serial = Find("nvmlDeviceGetSerial");
  const nvml::fn::nvmlDeviceGetVbiosVersion vbios_version = Find("nvmlDeviceGetVbiosVersion");
  const nvml::fn::nvmlSystemGetNVMLVersion nvml_version = Find("nvmlSystemGetNVMLVersion");
};

// Calls a function; UNIMPLEMENTED if the driver lacks it.
template <typename Function, typename... Args>
Status Call(NvmlCall call, Function function, Args... args) {
  if (function == nullptr) {
    return NvmlStatus(call, static_cast<int>(nvml::Return::kFunctionNotFound));
  }
  return NvmlStatus(call, static_cast<int>(function(args...)));
}

// Calls a function that writes a number through its last argument.
template <typename Function, typename... Args>
Result<int> ReadNumber(NvmlCall call, Function function, Args... args) {
  unsigned number = 0;
  RETURN_IF_ERROR(Call(call, function, args..., &number));
  return static_cast<int>(number);
}

// Calls a function that writes a text through its last two arguments, buffer and size.
template <unsigned kSize, typename Function, typename... Args>
Result<std::string> ReadText(NvmlCall call, Function function, Args... args) {
  std::array<char, kSize> text{};
  RETURN_IF_ERROR(Call(call, function, args..., text.data(), kSize));
  return std::string(text.data());
}

inline nvml::Device Handle(NvmlDevice device) { return static_cast<nvml::Device>(device); }
inline nvml::EventSet EventHandle(NvmlEventSet set) { return static_cast<nvml::EventSet>(set); }

}  // namespace tessera::gpu
