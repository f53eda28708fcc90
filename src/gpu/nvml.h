// SPDX-License-Identifier: Apache-2.0
// The part of NVML that the agent uses, as an interface, so that tests run without a driver.
// nvml_library.h has the one that calls libnvidia-ml.so.1.
//
// Threads: any, at the same time, as NVML itself allows. Every call may block for ever: callers run
// it through a BlockingCaller.
// Errors: the message is "nvmlDeviceGetName: GPU is lost"; codes by the table in nvml_status.cc, of
// which callers may rely on
//   UNIMPLEMENTED        the GPU or the driver does not know this (not an illness)
//   DATA_LOSS            the GPU is lost or wants a reset
//   FAILED_PRECONDITION  the session is dead: Init again, or load the library again
//   DEADLINE_EXCEEDED    no event within the time given
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/units.h"
#include "src/device/gpu.h"

namespace tessera::gpu {

// Every NVML function that is called anywhere in this room, in the order of NvmlCallName.
enum class NvmlCall : uint8_t {
  kInit,
  kShutdown,
  kDriverVersion,
  kCudaVersion,
  kDeviceCount,
  kHandleByIndex,
  kUuid,
  kMinorNumber,
  kName,
  kPciInfo,
  kMemoryInfo,
  kComputeCapability,
  kRecoveryAction,
  kCommonAncestor,
  kNvLinkState,
  kNvLinkRemoteType,
  kNvLinkRemotePciInfo,
  kEventSetCreate,
  kEventSetFree,
  kSupportedEvents,
  kRegisterEvents,
  kEventSetWait,
  kComputeProcesses,
  kProcessUtilization,
  kMigMode,
};
inline constexpr int kNvmlCallCount = static_cast<int>(NvmlCall::kMigMode) + 1;

// "nvmlDeviceGetName", the symbol in the library.
std::string_view NvmlCallName(NvmlCall call);

// The library's own pointers; they mean something only to the Nvml that gave them.
using NvmlDevice = void*;
using NvmlEventSet = void*;

// What the driver asks an operator to do (field 230).
enum class RecoveryAction { kNone, kResetGpu, kReboot, kDrainP2p, kDrainAndReset };

enum class NvLinkPeer { kGpu, kSwitch, kOther };

struct XidEvent {
  NvmlDevice device = nullptr;
  uint64_t xid = 0;
};

// A process that computes on a GPU. Ids are those of the caller's pid namespace; processes outside
// of it are not told.
struct GpuProcess {
  int pid = 0;
  Bytes memory;  // 0 where the driver does not say
};
struct ProcessLoad {
  int pid = 0;
  int percent = 0;  // of the GPU's multiprocessors, over the driver's last sampling period
};

class Nvml {
 public:
  virtual ~Nvml() = default;

  virtual Status Init() = 0;
  virtual Status Shutdown() = 0;
  virtual Result<std::string> DriverVersion() = 0;
  virtual Result<int> CudaVersion() = 0;
  virtual Result<int> DeviceCount() = 0;
  virtual Result<NvmlDevice> HandleByIndex(int index) = 0;

  virtual Result<std::string> Uuid(NvmlDevice device) = 0;
  virtual Result<int> MinorNumber(NvmlDevice device) = 0;
  virtual Result<std::string> Name(NvmlDevice device) = 0;
  // "0000:07:00.0"
  virtual Result<std::string> PciBusId(NvmlDevice device) = 0;
  virtual Result<Bytes> TotalMemory(NvmlDevice device) = 0;
  virtual Result<device::ComputeCapability> Capability(NvmlDevice device) = 0;
  virtual Result<RecoveryAction> Recovery(NvmlDevice device) = 0;
  // Whether MIG mode is on now. UNIMPLEMENTED where the GPU cannot.
  virtual Result<bool> MigEnabled(NvmlDevice device) = 0;

  virtual Result<device::PcieLevel> CommonAncestor(NvmlDevice a, NvmlDevice b) = 0;
  // INVALID_ARGUMENT for a link number that the GPU does not have.
  virtual Result<bool> NvLinkActive(NvmlDevice device, int link) = 0;
  virtual Result<NvLinkPeer> NvLinkRemoteType(NvmlDevice device, int link) = 0;
  virtual Result<std::string> NvLinkRemoteBusId(NvmlDevice device, int link) = 0;

  virtual Result<NvmlEventSet> EventSetCreate() = 0;
  virtual Status EventSetFree(NvmlEventSet set) = 0;
  // UNIMPLEMENTED where the GPU reports no XIDs.
  virtual Status RegisterXidEvents(NvmlDevice device, NvmlEventSet set) = 0;
  virtual Result<std::vector<GpuProcess>> ComputeProcesses(NvmlDevice device) = 0;
  // Of processes that did something after `since`; each once.
  virtual Result<std::vector<ProcessLoad>> ProcessLoads(NvmlDevice device, WallTime since) = 0;

  // Blocks for up to `timeout`.
  virtual Result<XidEvent> WaitForXid(NvmlEventSet set, Duration timeout) = 0;
};

// Finds and loads the library; given in, so that tests can let a driver appear and change.
class NvmlLoader {
 public:
  virtual ~NvmlLoader() = default;
  // Any thread; blocks. NOT_FOUND says where it looked.
  virtual Result<std::shared_ptr<Nvml>> Load() = 0;
  // Changes when the driver on disk is another one than before; empty when there is none. Cheap.
  virtual std::string Fingerprint() = 0;
};

}  // namespace tessera::gpu
