// SPDX-License-Identifier: Apache-2.0
// nvmlInit, nvmlShutdown, the node as a whole, and handles.
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <strings.h>

#include "src/sim/nvml/affinity.h"
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

constexpr unsigned kUuidText = 1;

// Finds the handle of the first visible GPU for which `matches` is true. If this GPU is lost, the
// result is an error, as with the real library.
template <typename Matches>
Return FindHandle(const char* function, Device* device, Matches matches) {
  const NodeCall call(function, FaultCheck::kLater);
  if (call.result() != Return::kSuccess) return call.result();
  NVML_REQUIRE(device != nullptr);
  for (std::uint32_t i = 0; i < call.visible().count; ++i) {
    const std::uint32_t gpu = call.visible().gpus[i];
    if (!matches(i, call.state().facts(gpu))) continue;
    const auto fault =
        static_cast<Return>(call.state().CheckFault(function, static_cast<std::int32_t>(gpu)));
    if (fault != Return::kSuccess) return fault;
    if (call.state().is_lost(gpu)) return Return::kGpuIsLost;
    *device = HandleOf(gpu);
    return Return::kSuccess;
  }
  const auto fault = static_cast<Return>(call.state().CheckFault(function, sim::kAllGpus));
  return fault != Return::kSuccess ? fault : Return::kNotFound;
}

Return HandleByIndex(const char* function, unsigned index, Device* device) {
  const Return result = FindHandle(
      function, device, [index](std::uint32_t i, const sim::GpuFacts&) { return i == index; });
  return result == Return::kNotFound ? Return::kInvalidArgument : result;
}

// The MIG device of that UUID, if its GPU is visible.
Return MigHandleByUuid(const char* function, const char* uuid, Device* device) {
  const NodeCall call(function);
  if (call.result() != Return::kSuccess) return call.result();
  NVML_REQUIRE(device != nullptr);
  const sim::State& state = call.state();
  for (std::uint32_t i = 0; i < call.visible().count; ++i) {
    const std::uint32_t gpu = call.visible().gpus[i];
    for (std::uint32_t instance = 0; instance < sim::kMaxInstances; ++instance) {
      if (state.file().gpu_states[gpu].compute_instances[instance].present.load() == 0) continue;
      if (strcasecmp(uuid, state.InstanceUuid(gpu, instance).c_str()) != 0) continue;
      if (!state.MayUse(gpu, instance)) continue;
      if (state.is_lost(gpu)) return Return::kGpuIsLost;
      *device = HandleOfMigDevice(gpu, instance);
      return Return::kSuccess;
    }
  }
  return Return::kNotFound;
}

Return HandleByUuid(const char* function, const char* uuid, Device* device) {
  if (strncasecmp(uuid, "MIG-", 4) == 0) return MigHandleByUuid(function, uuid, device);
  return FindHandle(function, device, [uuid](std::uint32_t, const sim::GpuFacts& facts) {
    return strcasecmp(uuid, facts.uuid) == 0;
  });
}

// Parses domain:bus:device.function, domain:bus:device or bus:device.function, all in hex.
bool ParseBusId(const char* text, sim::PciAddress* address) {
  *address = {};
  char end = 0;
  if (std::sscanf(text, "%x:%x:%x.%x%c", &address->domain, &address->bus, &address->device,
                  &address->function, &end) == 4) {
    return true;
  }
  address->function = 0;
  if (std::sscanf(text, "%x:%x:%x%c", &address->domain, &address->bus, &address->device, &end) ==
      3) {
    return true;
  }
  address->domain = 0;
  return std::sscanf(text, "%x:%x.%x%c", &address->bus, &address->device, &address->function,
                     &end) == 3;
}

Return HandleByBusId(const char* function, const char* bus_id, Device* device) {
  sim::PciAddress wanted;
  if (bus_id == nullptr || !ParseBusId(bus_id, &wanted)) {
    const NodeCall call(function, FaultCheck::kLater);
    return call.result() != Return::kSuccess ? call.result() : Return::kInvalidArgument;
  }
  return FindHandle(function, device, [&wanted](std::uint32_t, const sim::GpuFacts& facts) {
    return facts.pci.domain == wanted.domain && facts.pci.bus == wanted.bus &&
           facts.pci.device == wanted.device && facts.pci.function == wanted.function;
  });
}

Return DeviceCount(const char* function, unsigned* count) {
  const NodeCall call(function);
  if (call.result() != Return::kSuccess) return call.result();
  return Put(count, static_cast<unsigned>(call.visible().count));
}

Return CudaVersion(const char* function, int* version) {
  const NodeCall call(function);
  if (call.result() != Return::kSuccess) return call.result();
  return Put(version, static_cast<int>(call.state().file().cuda_version));
}

// Reads /proc/<pid>/<file> up to the first NUL or newline. Returns the length; -1: no such file.
ssize_t ReadProcessName(unsigned pid, const char* file, char* name, unsigned length) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%u/%s", pid, file);
  std::FILE* stream = std::fopen(path, "re");
  if (stream == nullptr) return -1;
  const size_t size = std::fread(name, 1, length - 1, stream);
  std::fclose(stream);
  name[size] = '\0';
  name[std::strcspn(name, "\n")] = '\0';
  return static_cast<ssize_t>(std::strlen(name));
}

}  // namespace

Return nvmlInit() { return InitSession(__func__); }
Return nvmlInit_v2() { return InitSession(__func__); }
Return nvmlInitWithFlags(unsigned) { return InitSession(__func__); }
Return nvmlShutdown() { return ShutdownSession(__func__); }

Return nvmlSystemGetDriverVersion(char* version, unsigned length) {
  NVML_ENTER(call);
  return CopyText(call.state().file().driver_version, version, length);
}

Return nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  NVML_ENTER(call);
  return CopyText(call.state().file().nvml_version, version, length);
}

Return nvmlSystemGetCudaDriverVersion(int* version) { return CudaVersion(__func__, version); }
Return nvmlSystemGetCudaDriverVersion_v2(int* version) { return CudaVersion(__func__, version); }

Return nvmlSystemGetDriverBranch(DriverBranchInfo* info, unsigned length) {
  NVML_ENTER(call);
  NVML_REQUIRE(info != nullptr);
  if (info->version != VersionOf<DriverBranchInfo>(1)) return Return::kArgumentVersionMismatch;
  char branch[32];
  std::snprintf(branch, sizeof(branch), "r%d_00", std::atoi(call.state().file().driver_version));
  return CopyText(branch, info->branch,
                  length < sizeof(info->branch) ? length : sizeof(info->branch));
}

// NVML's documentation: "Returned process name is cropped to provided length." A zombie has only
// the name in comm.
Return nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  NVML_ENTER(call);
  NVML_REQUIRE(name != nullptr && length > 0);
  if (ReadProcessName(pid, "cmdline", name, length) > 0) return Return::kSuccess;
  return ReadProcessName(pid, "comm", name, length) >= 0 ? Return::kSuccess : Return::kNotFound;
}

Return nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned* count, Device* devices) {
  NVML_ENTER(call);
  NVML_REQUIRE(count != nullptr && (*count == 0 || devices != nullptr));
  const unsigned capacity = *count;
  *count = 0;
  for (std::uint32_t i = 0; i < call.visible().count; ++i) {
    const std::uint32_t gpu = call.visible().gpus[i];
    if (!CpusOf(call.state(), gpu).contains(cpu)) continue;
    if (capacity > 0 && *count == capacity) break;
    if (capacity > 0) devices[*count] = HandleOf(gpu);
    ++*count;
  }
  return Return::kSuccess;
}

Return nvmlSystemGetHicVersion(unsigned* count, HwbcEntry*) {
  NVML_ENTER(call);
  return Put(count, 0U);
}

Return nvmlUnitGetCount(unsigned* count) {
  NVML_ENTER(call);
  return Put(count, 0U);
}

Return nvmlGetExcludedDeviceCount(unsigned* count) {
  NVML_ENTER(call);
  return Put(count, 0U);
}
// The function's name in drivers before 450.
Return nvmlGetBlacklistDeviceCount(unsigned* count) {
  NVML_ENTER(call);
  return Put(count, 0U);
}

// Confidential computing is off.
Return nvmlSystemGetConfComputeState(ConfComputeState* state) {
  NVML_ENTER(call);
  return Put(state, ConfComputeState{});
}

Return nvmlDeviceGetCount(unsigned* count) { return DeviceCount(__func__, count); }
Return nvmlDeviceGetCount_v2(unsigned* count) { return DeviceCount(__func__, count); }

Return nvmlDeviceGetHandleByIndex(unsigned index, Device* device) {
  return HandleByIndex(__func__, index, device);
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  return HandleByIndex(__func__, index, device);
}

Return nvmlDeviceGetHandleBySerial(const char* serial, Device* device) {
  if (serial == nullptr) device = nullptr;
  return FindHandle(__func__, device, [serial](std::uint32_t, const sim::GpuFacts& facts) {
    return std::strcmp(serial, facts.serial) == 0;
  });
}

Return nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  return HandleByUuid(__func__, uuid == nullptr ? "" : uuid, uuid == nullptr ? nullptr : device);
}

Return nvmlDeviceGetHandleByUUIDV(const Uuid* uuid, Device* device) {
  char text[sizeof(uuid->value.text) + 1] = "";
  if (uuid != nullptr && uuid->version != VersionOf<Uuid>(1)) {
    NVML_ENTER(call);
    return Return::kArgumentVersionMismatch;
  }
  // The binary form is not implemented, because no known client uses it.
  if (uuid == nullptr || uuid->type != kUuidText) device = nullptr;
  if (device != nullptr) std::memcpy(text, uuid->value.text, sizeof(uuid->value.text));
  return HandleByUuid(__func__, text, device);
}

Return nvmlDeviceGetHandleByPciBusId(const char* bus_id, Device* device) {
  return HandleByBusId(__func__, bus_id, device);
}
Return nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device* device) {
  return HandleByBusId(__func__, bus_id, device);
}

}  // namespace tessera::nvml
