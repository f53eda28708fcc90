// SPDX-License-Identifier: Apache-2.0
#include "src/sim/nvml/model.h"

#include <ctime>

namespace tessera::nvml {
namespace {

// A busy chip takes this share of the range between idle power and the limit.
constexpr std::uint64_t kBusyPowerPercent = 85;
// A busy chip settles at this many degrees below slowdown.
constexpr unsigned kBusyMarginC = 20;
constexpr unsigned kMemoryOverCoreC = 4;
// The driver lowers the clocks of a GPU that is too hot, or at its power limit, to this percentage.
constexpr unsigned kHotClockPercent = 50;
constexpr unsigned kCappedClockPercent = 90;

// Interpolates: `idle` at no load, `busy` at full load.
unsigned Interpolate(unsigned idle, unsigned busy, unsigned percent) {
  if (busy <= idle) return idle;
  return idle + static_cast<unsigned>(std::uint64_t{busy - idle} * percent / 100);
}

unsigned BusyPower(const sim::GpuFacts& facts, unsigned limit_mw) {
  if (limit_mw <= facts.power_idle_mw) return facts.power_idle_mw;
  const std::uint64_t span = limit_mw - facts.power_idle_mw;
  return facts.power_idle_mw + static_cast<unsigned>(span * kBusyPowerPercent / 100);
}

bool IsBusy(const GpuCall& gpu) { return gpu.state().Utilization(gpu.gpu_index()).gpu > 0; }

// The value that root has set, or `value`.
unsigned SettingOr(const sim::AtomicU32& set, unsigned value) {
  const std::uint32_t chosen = set.load();
  return chosen != 0 ? chosen : value;
}

unsigned Clamp(unsigned value, unsigned low, unsigned high) {
  if (high != 0 && value > high) return high;
  return value < low ? low : value;
}

// Locked clocks also apply to idle GPUs.
unsigned LockedClock(const GpuCall& gpu, unsigned type, unsigned mhz) {
  const sim::SimGpuState& gpu_state = gpu.gpu_state();
  if (type == kClockMem) return Clamp(mhz, gpu_state.locked_mem_min, gpu_state.locked_mem_max);
  if (type == kClockVideo) return mhz;
  return Clamp(mhz, gpu_state.locked_graphics_min, gpu_state.locked_graphics_max);
}

unsigned ThrottledClock(std::uint64_t reasons, unsigned type, unsigned mhz) {
  if (type == kClockMem) return mhz;
  if ((reasons & kReasonsThermal) != 0) return mhz * kHotClockPercent / 100;
  return (reasons & kReasonSwPowerCap) != 0 ? mhz * kCappedClockPercent / 100 : mhz;
}

}  // namespace

bool InUse(const GpuCall& gpu) {
  sim::ProcessView view;
  return gpu.state().Processes(gpu.gpu_index(), &view, 1) > 0;
}

unsigned TemperatureOf(const GpuCall& gpu) {
  const std::uint32_t injected = gpu.gpu_state().temperature_c.load();
  if (injected != sim::kDerived) return injected;
  const sim::GpuFacts& facts = gpu.facts();
  const unsigned busy =
      facts.temperature_slowdown_c > kBusyMarginC ? facts.temperature_slowdown_c - kBusyMarginC : 0;
  return Interpolate(facts.temperature_idle_c, busy, gpu.state().Utilization(gpu.gpu_index()).gpu);
}

unsigned MemoryTemperatureOf(const GpuCall& gpu) {
  const std::uint32_t injected = gpu.gpu_state().memory_temperature_c.load();
  return injected != sim::kDerived ? injected : TemperatureOf(gpu) + kMemoryOverCoreC;
}

// GDDR6 on a T4 has no sensor.
bool HasMemoryTemperature(const GpuCall& gpu) { return gpu.facts().temperature_memory_max_c != 0; }

unsigned PowerOf(const GpuCall& gpu) {
  const std::uint32_t injected = gpu.gpu_state().power_mw.load();
  if (injected != sim::kDerived) return injected;
  return Interpolate(gpu.facts().power_idle_mw, BusyPower(gpu.facts(), PowerLimitOf(gpu)),
                     gpu.state().Utilization(gpu.gpu_index()).gpu);
}

unsigned PowerLimitOf(const GpuCall& gpu) { return gpu.state().PowerLimitMw(gpu.gpu_index()); }

// Uses the default power limit, so that the counter does not fall when root changes the limit.
std::uint64_t EnergyOf(const GpuCall& gpu) {
  const sim::GpuFacts& facts = gpu.facts();
  const std::uint64_t created_us = gpu.state().file().created_ns / 1000;
  const std::uint64_t now_us = NowUs();
  const std::uint64_t age_ms = now_us > created_us ? (now_us - created_us) / 1000 : 0;
  const std::uint64_t busy_ms = gpu.state().BusyNs(gpu.gpu_index()) / 1000000;
  return gpu.gpu_state().energy_base_mj.load() + age_ms * facts.power_idle_mw / 1000 +
         busy_ms * (BusyPower(facts, facts.power_limit_mw) - facts.power_idle_mw) / 1000;
}

bool ClockOf(const GpuCall& gpu, unsigned type, unsigned* mhz) {
  const sim::GpuFacts& facts = gpu.facts();
  const unsigned idle[] = {facts.clock_graphics_idle, facts.clock_sm_idle, facts.clock_mem_idle,
                           facts.clock_video_idle};
  if (type > kClockVideo) return false;
  unsigned clock = idle[type];
  if (IsBusy(gpu)) {
    ApplicationClockOf(gpu, type, &clock);
    clock = ThrottledClock(EventReasonsOf(gpu), type, clock);
  }
  *mhz = LockedClock(gpu, type, clock);
  return true;
}

bool MaxClockOf(const GpuCall& gpu, unsigned type, unsigned* mhz) {
  const sim::GpuFacts& facts = gpu.facts();
  const unsigned clocks[] = {facts.clock_graphics_max, facts.clock_sm_max, facts.clock_mem_max,
                             facts.clock_video_max};
  if (type > kClockVideo) return false;
  *mhz = clocks[type];
  return true;
}

bool ApplicationClockOf(const GpuCall& gpu, unsigned type, unsigned* mhz) {
  if (!MaxClockOf(gpu, type, mhz)) return false;
  if (type == kClockMem) *mhz = SettingOr(gpu.gpu_state().application_mem, *mhz);
  if (type <= kClockSm) *mhz = SettingOr(gpu.gpu_state().application_graphics, *mhz);
  return true;
}

// Ampere and later stay in P0; older chips sleep in P8 without a context.
unsigned PerformanceStateOf(const GpuCall& gpu) {
  return gpu.at_least(kArchAmpere) || InUse(gpu) ? 0 : 8;
}

std::uint64_t EventReasonsOf(const GpuCall& gpu) {
  const sim::GpuFacts& facts = gpu.facts();
  const bool busy = IsBusy(gpu);
  const std::uint32_t chosen = gpu.gpu_state().application_graphics.load();
  std::uint64_t reasons = 0;
  if (!busy) reasons |= kReasonGpuIdle;
  if (gpu.state().IsThermallyThrottled(gpu.gpu_index()))
    reasons |= kReasonHwSlowdown | kReasonHwThermal;
  if (gpu.state().IsPowerThrottled(gpu.gpu_index())) reasons |= kReasonSwPowerCap;
  if (busy && chosen != 0 && chosen < facts.clock_graphics_max) {
    reasons |= kReasonApplicationsClocks;
  }
  return reasons;
}

}  // namespace tessera::nvml
