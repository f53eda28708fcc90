// SPDX-License-Identifier: Apache-2.0
// The questions that are put to NVML, each a function that blocks and gives a report. They run on
// another thread and share nothing with the inventory but a CallSite. Private to this room.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/device/gpu.h"
#include "src/gpu/nvml.h"
#include "src/gpu/nvml_status.h"
#include "src/oci/proc_gpus.h"

namespace tessera::gpu {

// Which call a thread is in, so that somebody else can say what did not return.
class CallSite {
 public:
  void Enter(NvmlCall call) { call_ = call; }
  NvmlCall call() const { return call_; }

 private:
  std::atomic<NvmlCall> call_{NvmlCall::kInit};
};

// What went wrong, for counting; what the driver merely lacks is left out.
using NvmlErrors = std::vector<std::pair<NvmlCall, std::string_view>>;  // of NvmlErrorName

// NVML with a call site and a list of errors around it.
struct Interview {
  Nvml& nvml;
  CallSite& site;
  NvmlErrors& errors;

  template <typename Question>
  auto Ask(NvmlCall call, const Question& question) {
    site.Enter(call);
    auto answer = question(nvml);
    const Status& status = StatusOf(answer);
    if (!status.ok() && status.code() != Code::kUnimplemented) {
      errors.emplace_back(call, NvmlErrorName(status));
    }
    return answer;
  }

 private:
  static const Status& StatusOf(const Status& status) { return status; }
  template <typename T>
  static const Status& StatusOf(const Result<T>& result) {
    return result.status();
  }
};

// A library that was loaded and initialised, or why not.
struct SessionReport {
  Status status;
  std::shared_ptr<Nvml> nvml;
  std::string fingerprint;
  std::string driver_version;
  int cuda_version = 0;
  int count = 0;
  std::vector<oci::ProcGpu> proc_gpus;  // with valid UUIDs
  std::vector<std::string> notes;
  NvmlErrors errors;
};
// Init, versions and count over `report->nvml`. A count that fails is found by asking for handles.
void OpenSession(const std::string& proc_root, CallSite* site, SessionReport* report);

// `sys_root`/bus/pci/devices/<bus id>/numa_node; nothing where it is negative or missing. Blocks.
std::optional<int> ReadNumaNode(const std::string& sys_root, const std::string& pci_bus_id);

// Who the GPU at one index is.
struct GpuReport {
  Status status;  // the first thing that makes it unfit to be offered
  NvmlDevice handle = nullptr;
  bool identified = false;    // gpu.uuid is right
  bool polls_memory = false;  // TotalMemory is known to this GPU
  bool mig = false;           // MIG mode is on
  device::Gpu gpu;
  NvmlErrors errors;
};
void IdentifyGpu(Nvml& nvml, int index, const std::string& sys_root, CallSite* site,
                 GpuReport* report);

// Whether it is still there.
struct PollReport {
  Status status;
  RecoveryAction recovery = RecoveryAction::kNone;
  bool knows_recovery = false;  // the driver has answered; an old one does not know the question
  bool mig = false;             // MIG mode is on
  NvmlErrors errors;
};
void PollGpu(Nvml& nvml, NvmlDevice handle, bool memory, CallSite* site, PollReport* report);

// What one GPU says about its links.
struct LinkReport {
  std::map<std::string, int> nvlinks;               // direct, by PCI address of the other end
  int switch_links = 0;                             // into NVSwitch
  std::map<std::string, device::PcieLevel> levels;  // by UUID of the other GPU
  std::string problem;                              // the first question that failed
  NvmlErrors errors;
};
struct LinkPeer {
  std::string uuid;
  NvmlDevice handle;
};
void ReadLinks(Nvml& nvml, NvmlDevice handle, const std::vector<LinkPeer>& peers, CallSite* site,
               LinkReport* report);

}  // namespace tessera::gpu
