// SPDX-License-Identifier: Apache-2.0
// The part of NVML that the agent uses, as an interface, so that tests run without a driver.
// nvml_library.h implements it with libnvidia-ml.so.1.
//
// Threads: any, concurrently, as NVML itself allows. Every call may block forever, so callers use a
// BlockingCaller.
// Errors: a message is, for example, "nvmlDeviceGetName: GPU is lost". nvml_status.cc maps NVML's
// return codes. Callers may rely on these codes:
//   UNIMPLEMENTED        the GPU or the driver does not support the call (not a health problem)
//   DATA_LOSS            the GPU is lost or requires a reset
//   FAILED_PRECONDITION  the session since Init is dead: call Init again, or load the library again
//   DEADLINE_EXCEEDED    no event within the timeout
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/units.h"
#include "src/device/gpu.h"

namespace tessera::gpu {

// The NVML functions that src/gpu calls.
enum class NvmlCall : uint8_t {
#define NVML_CALL(call, member, function, older) call,
#include "src/gpu/nvml_calls.inc"
#undef NVML_CALL
};

// "nvmlDeviceGetName", the symbol in the library.
std::string_view NvmlCallName(NvmlCall call);

// Opaque pointers of the library, valid only for the Nvml that returned them.
using NvmlDevice = void*;
using NvmlEventSet = void*;

// The recovery that the driver requests from an operator (field 230).
enum class RecoveryAction { kNone, kResetGpu, kReboot, kDrainP2p, kDrainAndReset };

enum class NvLinkRemoteKind { kGpu, kSwitch, kOther };

struct XidEvent {
  NvmlDevice device = nullptr;
  uint64_t xid = 0;
};

// A process that computes on a GPU. Ids are in the caller's pid namespace; processes outside of it
// are omitted.
struct GpuProcess {
  int pid = 0;
  Bytes memory;  // 0 if the driver does not report it
};
struct ProcessLoad {
  int pid = 0;
  int percent = 0;      // of the GPU's multiprocessors, over the driver's last sampling period
  uint64_t end_us = 0;  // end of that period, by a clock of the driver
};

enum class ClockDomain { kSm, kMemory };

struct UtilizationRates {
  int gpu = 0;  // percent
  int memory = 0;
};

struct MemoryUse {
  Bytes total;
  Bytes free;
  Bytes used;                     // includes reserved memory if `reserved` is unknown
  std::optional<Bytes> reserved;  // by the driver; unknown before driver 510
};

// A field of nvmlDeviceGetFieldValues, by NVML's number.
struct FieldQuery {
  unsigned field = 0;
  unsigned scope = 0;
};
// The scope that sums over all NVLinks.
inline constexpr unsigned kAllLinks = ~0u;

// The counters of a GPU at one moment, for GPU performance monitoring (GPM). Destroy the sample
// before the Shutdown of the Nvml that made it.
class GpmSample {
 public:
  virtual ~GpmSample() = default;
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
  // Whether MIG mode is on now. UNIMPLEMENTED if the GPU does not support MIG.
  virtual Result<bool> MigEnabled(NvmlDevice device) = 0;
  // Empty until the fabric manager has registered the GPU. UNIMPLEMENTED without a fabric.
  virtual Result<std::optional<device::FabricClique>> Fabric(NvmlDevice device) = 0;

  virtual Result<device::PcieLevel> CommonAncestor(NvmlDevice a, NvmlDevice b) = 0;
  // INVALID_ARGUMENT for a link number that the GPU does not have.
  virtual Result<bool> NvLinkActive(NvmlDevice device, int link) = 0;
  virtual Result<NvLinkRemoteKind> NvLinkRemoteType(NvmlDevice device, int link) = 0;
  virtual Result<std::string> NvLinkRemoteBusId(NvmlDevice device, int link) = 0;

  virtual Result<NvmlEventSet> EventSetCreate() = 0;
  virtual Status EventSetFree(NvmlEventSet set) = 0;
  // UNIMPLEMENTED if the GPU reports no XIDs.
  virtual Status RegisterXidEvents(NvmlDevice device, NvmlEventSet set) = 0;
  virtual Result<std::vector<GpuProcess>> ComputeProcesses(NvmlDevice device) = 0;
  // The newest load of each process of which the driver has a sample, however old.
  virtual Result<std::vector<ProcessLoad>> ProcessLoads(NvmlDevice device) = 0;

  // The current state of a GPU, for metrics.
  virtual Result<int> ClockMhz(NvmlDevice device, ClockDomain domain) = 0;
  virtual Result<int> TemperatureCelsius(NvmlDevice device) = 0;
  virtual Result<int> PowerMilliwatts(NvmlDevice device) = 0;
  virtual Result<UtilizationRates> Utilization(NvmlDevice device) = 0;
  virtual Result<int> EncoderPercent(NvmlDevice device) = 0;
  virtual Result<int> DecoderPercent(NvmlDevice device) = 0;
  virtual Result<MemoryUse> Memory(NvmlDevice device) = 0;
  virtual Result<int64_t> PcieReplays(NvmlDevice device) = 0;
  // All fields in one call, in the order of `queries`; nullopt for a field that the GPU or the
  // driver lacks.
  virtual Result<std::vector<std::optional<double>>> FieldValues(
      NvmlDevice device, std::span<const FieldQuery> queries) = 0;
  // UNIMPLEMENTED before Hopper.
  virtual Result<std::unique_ptr<GpmSample>> TakeGpmSample(NvmlDevice device) = 0;
  // Metrics between two samples of one GPU, at least 100 ms apart, by NVML's numbers; nullopt for a
  // metric that the GPU lacks.
  virtual Result<std::vector<std::optional<double>>> GpmMetrics(
      const GpmSample& earlier, const GpmSample& later, std::span<const unsigned> metrics) = 0;
  virtual Result<std::string> Serial(NvmlDevice device) = 0;
  virtual Result<std::string> VbiosVersion(NvmlDevice device) = 0;
  virtual Result<std::string> NvmlVersion() = 0;

  // Blocks for up to `timeout`.
  virtual Result<XidEvent> WaitForXid(NvmlEventSet set, Duration timeout) = 0;
};

// Finds and loads the library; injected, so that tests can make a driver appear and change.
class NvmlLoader {
 public:
  virtual ~NvmlLoader() = default;
  // Any thread; blocks. NOT_FOUND lists the paths that it tried.
  virtual Result<std::shared_ptr<Nvml>> Load() = 0;
  // Changes when the driver on disk is replaced; empty without a driver. Cheap.
  virtual std::string Fingerprint() = 0;
};

}  // namespace tessera::gpu
