// SPDX-License-Identifier: Apache-2.0
// The queries to NVML, each a blocking function that fills a report. They run on another thread and
// share only an NvmlCalls with the inventory. Included only in src/gpu.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/device/gpu.h"
#include "src/gpu/nvml.h"
#include "src/gpu/nvml_status.h"
#include "src/oci/proc_gpus.h"

namespace tessera::gpu {

// Failed calls with NvmlErrorName, for the statistics. Unsupported calls are left out.
using NvmlErrors = std::vector<std::pair<NvmlCall, std::string_view>>;

// The NVML calls of one job: the call that its thread is in, so that another thread can name a
// hanging call, and the errors, which are read after the job.
class NvmlCalls {
 public:
  void Enter(NvmlCall call) { current_ = call; }
  NvmlCall current() const { return current_; }

  // Calls `method` of `nvml`.
  template <typename Method, typename... Args>
  auto Call(Nvml& nvml, NvmlCall call, Method method, Args... args) {
    Enter(call);
    auto answer = (nvml.*method)(args...);
    const Status& status = StatusOf(answer);
    if (!status.ok() && status.code() != Code::kUnimplemented) AddError(call, status);
    return answer;
  }
  void AddError(NvmlCall call, const Status& status) {
    errors_.emplace_back(call, NvmlErrorName(status));
  }
  const NvmlErrors& errors() const { return errors_; }

 private:
  static const Status& StatusOf(const Status& status) { return status; }
  template <typename T>
  static const Status& StatusOf(const Result<T>& result) {
    return result.status();
  }

  std::atomic<NvmlCall> current_{NvmlCall::kInit};
  NvmlErrors errors_;
};

// A library that was loaded and initialized, or the error.
struct SessionReport {
  Status status;
  std::shared_ptr<Nvml> nvml;
  std::string library_fingerprint;  // NvmlLoader::Fingerprint
  std::string driver_version;
  int cuda_version = 0;
  int count = 0;
  std::vector<oci::ProcGpu> proc_gpus;  // with valid UUIDs
  std::vector<std::string> notes;
};
// Calls Init and reads the versions and the number of GPUs through `report->nvml`. If NVML cannot
// count the GPUs, counts the indices that have a handle.
void OpenSession(const std::string& proc_root, NvmlCalls* calls, SessionReport* report);

// `sys_root`/bus/pci/devices/<bus id>/numa_node; nothing if it is negative or missing. Blocks.
std::optional<int> ReadNumaNode(const std::string& sys_root, const std::string& pci_bus_id);

// The identity of the GPU at one index.
struct IdentityReport {
  Status status;  // the first error because of which the GPU cannot be offered
  NvmlDevice handle = nullptr;
  bool identified = false;            // gpu.uuid is valid
  bool supports_memory_info = false;  // the GPU supports TotalMemory
  bool supports_fabric_info = false;  // the GPU supports Fabric
  bool mig = false;                   // MIG mode is on
  device::Gpu gpu;
};
void IdentifyGpu(Nvml& nvml, int index, const std::string& sys_root, NvmlCalls* calls,
                 IdentityReport* report);

// Whether the GPU still works.
struct PollReport {
  Status status;
  RecoveryAction recovery = RecoveryAction::kNone;
  bool supports_recovery = false;  // the driver supports recovery actions
  bool mig = false;                // MIG mode is on
  bool has_fabric_answer = false;  // `fabric` is set from the driver's answer
  std::optional<device::FabricClique> fabric;
};
// `poll_memory`, `poll_fabric`: whether the GPU supports these queries.
void PollGpu(Nvml& nvml, NvmlDevice handle, bool poll_memory, bool poll_fabric, NvmlCalls* calls,
             PollReport* report);

// The links that one GPU reports.
struct LinkReport {
  std::map<std::string, int> nvlinks;               // direct, by PCI address of the other end
  int switch_links = 0;                             // into NVSwitch
  std::map<std::string, device::PcieLevel> levels;  // by UUID of the other GPU
  std::string problem;                              // the first query that failed
};
struct PeerGpu {
  std::string uuid;
  NvmlDevice handle;
};
void ReadLinks(Nvml& nvml, NvmlDevice handle, const std::vector<PeerGpu>& peers, NvmlCalls* calls,
               LinkReport* report);

}  // namespace tessera::gpu
