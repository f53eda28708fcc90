// SPDX-License-Identifier: Apache-2.0
// The condition of a GPU: PCIe, clocks, heat, power.
#include "src/sim/nvml/model.h"
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

constexpr std::uint64_t kSupportedReasons =
    kReasonGpuIdle | kReasonApplicationsClocks | kReasonSwPowerCap | kReasonHwSlowdown |
    kReasonSyncBoost | kReasonSwThermal | kReasonHwThermal | kReasonHwPowerBrake;
constexpr unsigned kGraphicsClockStepMhz = 15;
constexpr unsigned kStateUnknown = 32;

enum Threshold : unsigned { kShutdown = 0, kSlowdown = 1, kMemoryMax = 2, kThresholds = 8 };
enum PerfPolicy : unsigned { kPolicyPower = 0, kPolicyThermal = 1 };
enum ClockId : unsigned { kCurrent, kApplicationTarget, kApplicationDefault, kBoostMax };

Return GetMaxClock(const char* function, Device device, unsigned type, unsigned* mhz) {
  const GpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(mhz != nullptr && type <= kClockVideo);
  return MaxClockOf(gpu, type, mhz) ? Return::kSuccess : Return::kNotSupported;
}

// Video and SM have no application clock.
bool HasApplicationClock(unsigned type) { return type == kClockGraphics || type == kClockMem; }

// Every GPU has P0; GPUs older than Ampere also have P8, in which they sleep.
bool HasPerformanceState(const GpuCall& gpu, unsigned state) {
  return state == 0 || (state == 8 && !gpu.at_least(kArchAmpere));
}

// Writes the supported memory clocks, the highest first, and returns their number.
unsigned MemoryClocks(const sim::GpuFacts& facts, unsigned (&mhz)[2]) {
  mhz[0] = facts.clock_mem_max;
  mhz[1] = facts.clock_mem_idle;
  return facts.clock_mem_idle < facts.clock_mem_max ? 2 : 1;
}

}  // namespace

// The links of a simulated node are always up at full speed.
NVML_VALUE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, gpu.facts().pcie_gen_max)
NVML_VALUE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, gpu.facts().pcie_gen_max)
NVML_VALUE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, gpu.facts().pcie_gen_max)
NVML_VALUE(nvmlDeviceGetMaxPcieLinkWidth, unsigned, gpu.facts().pcie_width_max)
NVML_VALUE(nvmlDeviceGetCurrPcieLinkWidth, unsigned, gpu.facts().pcie_width_max)

// In NVML's enumeration of PCIe speeds, each value is the number of the generation.
NVML_VALUE(nvmlDeviceGetPcieLinkMaxSpeed, unsigned, gpu.facts().pcie_gen_max)

Return nvmlDeviceGetPcieSpeed(Device device, unsigned* mbps) {
  static constexpr unsigned kMbps[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
  NVML_ENTER_DEVICE(gpu, device);
  const unsigned generation = gpu.facts().pcie_gen_max;
  return Put(mbps, kMbps[generation < 7 ? generation : 0]);
}

// Traffic on PCIe is not simulated.
Return nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned* kib_s) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(counter < 2);
  return Put(kib_s, 0U);
}

NVML_VALUE(nvmlDeviceGetPcieReplayCounter, unsigned, gpu.gpu_state().pcie_replays.load())

Return nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned* mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mhz != nullptr);
  return ClockOf(gpu, type, mhz) ? Return::kSuccess : Return::kInvalidArgument;
}

Return nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned* mhz) {
  return GetMaxClock(__func__, device, type, mhz);
}
Return nvmlDeviceGetMaxCustomerBoostClock(Device device, unsigned type, unsigned* mhz) {
  return GetMaxClock(__func__, device, type, mhz);
}
Return nvmlDeviceGetApplicationsClock(Device device, unsigned type, unsigned* mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mhz != nullptr && type <= kClockVideo);
  const bool is_supported = HasApplicationClock(type) && ApplicationClockOf(gpu, type, mhz);
  return is_supported ? Return::kSuccess : Return::kNotSupported;
}
Return nvmlDeviceGetDefaultApplicationsClock(Device device, unsigned type, unsigned* mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mhz != nullptr && type <= kClockVideo);
  const bool is_supported = HasApplicationClock(type) && MaxClockOf(gpu, type, mhz);
  return is_supported ? Return::kSuccess : Return::kNotSupported;
}

Return nvmlDeviceGetClock(Device device, unsigned type, unsigned id, unsigned* mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mhz != nullptr && type <= kClockVideo && id <= kBoostMax);
  const bool is_supported = id == kCurrent             ? ClockOf(gpu, type, mhz)
                            : id == kApplicationTarget ? ApplicationClockOf(gpu, type, mhz)
                                                       : MaxClockOf(gpu, type, mhz);
  return is_supported ? Return::kSuccess : Return::kNotSupported;
}

Return nvmlDeviceGetSupportedMemoryClocks(Device device, unsigned* count, unsigned* mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(count != nullptr);
  unsigned clocks[2];
  const unsigned capacity = *count;
  *count = MemoryClocks(gpu.facts(), clocks);
  if (capacity < *count || mhz == nullptr) return Return::kInsufficientSize;
  for (unsigned i = 0; i < *count; ++i) mhz[i] = clocks[i];
  return Return::kSuccess;
}

// Lists the clocks in descending order, in the steps of the real chips.
Return nvmlDeviceGetSupportedGraphicsClocks(Device device, unsigned memory_mhz, unsigned* count,
                                            unsigned* mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(count != nullptr);
  const sim::GpuFacts& facts = gpu.facts();
  if (memory_mhz != facts.clock_mem_max && memory_mhz != facts.clock_mem_idle) {
    return Return::kNotFound;
  }
  if (facts.clock_graphics_max < facts.clock_graphics_idle) return Return::kNotSupported;
  const unsigned steps =
      (facts.clock_graphics_max - facts.clock_graphics_idle) / kGraphicsClockStepMhz + 1;
  const unsigned capacity = *count;
  *count = steps;
  if (capacity < steps || mhz == nullptr) return Return::kInsufficientSize;
  for (unsigned i = 0; i < steps; ++i) {
    mhz[i] = facts.clock_graphics_max - i * kGraphicsClockStepMhz;
  }
  return Return::kSuccess;
}

NVML_VALUE(nvmlDeviceGetCurrentClocksEventReasons, std::uint64_t, EventReasonsOf(gpu))
NVML_VALUE(nvmlDeviceGetCurrentClocksThrottleReasons, std::uint64_t, EventReasonsOf(gpu))
NVML_VALUE(nvmlDeviceGetSupportedClocksEventReasons, std::uint64_t, kSupportedReasons)
NVML_VALUE(nvmlDeviceGetSupportedClocksThrottleReasons, std::uint64_t, kSupportedReasons)

// The simulated boards have no fans: the chassis cools them.
NVML_VALUE(nvmlDeviceGetNumFans, unsigned, 0)

Return nvmlDeviceGetFanSpeed(Device device, unsigned* percent) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(percent != nullptr);
  return Return::kNotSupported;
}

Return nvmlDeviceGetFanSpeed_v2(Device device, unsigned, unsigned* percent) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(percent != nullptr);
  return Return::kNotSupported;
}

Return nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned* celsius) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(sensor == 0 && celsius != nullptr);
  return Put(celsius, TemperatureOf(gpu));
}

Return nvmlDeviceGetTemperatureV(Device device, Temperature* temperature) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(temperature != nullptr);
  if (temperature->version != VersionOf<Temperature>(1)) return Return::kArgumentVersionMismatch;
  NVML_REQUIRE(temperature->sensor == 0);
  temperature->temperature = static_cast<int>(TemperatureOf(gpu));
  return Return::kSuccess;
}

Return nvmlDeviceGetTemperatureThreshold(Device device, unsigned threshold, unsigned* celsius) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(celsius != nullptr && threshold < kThresholds);
  switch (threshold) {
    case kShutdown:
      return Put(celsius, gpu.facts().temperature_shutdown_c);
    case kSlowdown:
      return Put(celsius, gpu.facts().temperature_slowdown_c);
    case kMemoryMax:
      if (!HasMemoryTemperature(gpu)) return Return::kNotSupported;
      return Put(celsius, gpu.facts().temperature_memory_max_c);
    default:
      return Return::kNotSupported;
  }
}

Return nvmlDeviceGetMarginTemperature(Device device, MarginTemperature* margin) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(margin != nullptr);
  if (margin->version != VersionOf<MarginTemperature>(1)) return Return::kArgumentVersionMismatch;
  if (!gpu.at_least(kArchAda)) return Return::kNotSupported;
  margin->margin =
      static_cast<int>(gpu.facts().temperature_slowdown_c) - static_cast<int>(TemperatureOf(gpu));
  return Return::kSuccess;
}

NVML_VALUE(nvmlDeviceGetPerformanceState, unsigned, PerformanceStateOf(gpu))
NVML_VALUE(nvmlDeviceGetPowerState, unsigned, PerformanceStateOf(gpu))

// Unused elements of the array are unknown.
Return nvmlDeviceGetSupportedPerformanceStates(Device device, unsigned* states, unsigned bytes) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(states != nullptr);
  const unsigned capacity = bytes / sizeof(*states);
  unsigned count = 0;
  for (unsigned state = 0; state < 16; ++state) {
    if (!HasPerformanceState(gpu, state)) continue;
    if (count == capacity) return Return::kInsufficientSize;
    states[count++] = state;
  }
  while (count < capacity) states[count++] = kStateUnknown;
  return Return::kSuccess;
}

Return nvmlDeviceGetMinMaxClockOfPState(Device device, unsigned type, unsigned state,
                                        unsigned* min_mhz, unsigned* max_mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(min_mhz != nullptr && max_mhz != nullptr && type <= kClockVideo);
  if (!HasPerformanceState(gpu, state)) return Return::kNotSupported;
  const sim::GpuFacts& facts = gpu.facts();
  const unsigned idle[] = {facts.clock_graphics_idle, facts.clock_sm_idle, facts.clock_mem_idle,
                           facts.clock_video_idle};
  *min_mhz = idle[type];
  MaxClockOf(gpu, type, max_mhz);
  if (state != 0) *max_mhz = *min_mhz;
  return Return::kSuccess;
}

NVML_VALUE(nvmlDeviceGetPowerManagementMode, unsigned, kFeatureEnabled)
NVML_VALUE(nvmlDeviceGetPowerManagementLimit, unsigned, PowerLimitOf(gpu))
NVML_VALUE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, gpu.facts().power_limit_mw)
NVML_VALUE(nvmlDeviceGetEnforcedPowerLimit, unsigned, PowerLimitOf(gpu))

Return nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned* min_milliwatts,
                                                    unsigned* max_milliwatts) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(min_milliwatts != nullptr && max_milliwatts != nullptr);
  *min_milliwatts = gpu.facts().power_min_mw;
  *max_milliwatts = gpu.facts().power_max_mw;
  return Return::kSuccess;
}

// The power source is always AC.
NVML_VALUE(nvmlDeviceGetPowerSource, unsigned, 0)
NVML_VALUE(nvmlDeviceGetPowerUsage, unsigned, PowerOf(gpu))
NVML_VALUE(nvmlDeviceGetTotalEnergyConsumption, std::uint64_t, EnergyOf(gpu))

Return nvmlDeviceGetViolationStatus(Device device, unsigned policy, ViolationTime* time) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(time != nullptr && policy < 12);
  time->reference_time = NowUs();
  time->violation_time = policy == kPolicyPower ? gpu.state().PowerThrottlingNs(gpu.gpu_index())
                         : policy == kPolicyThermal
                             ? gpu.state().ThermalThrottlingNs(gpu.gpu_index())
                             : 0;
  return Return::kSuccess;
}

}  // namespace tessera::nvml
