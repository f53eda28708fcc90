// SPDX-License-Identifier: Apache-2.0
#include "src/sim/nvml/model.h"

#include <ctime>

namespace tessera::nvml {
namespace {

// A busy chip takes this share of what lies between idle and its limit.
constexpr std::uint64_t kBusyPowerPercent = 85;
// Degrees below slowdown where a busy chip settles.
constexpr unsigned kBusyMarginC = 20;
constexpr unsigned kMemoryOverCoreC = 4;

// `idle` at no load, `busy` at full load.
unsigned Between(unsigned idle, unsigned busy, unsigned percent) {
  if (busy <= idle) return idle;
  return idle + static_cast<unsigned>(std::uint64_t{busy - idle} * percent / 100);
}

unsigned BusyPower(const sim::GpuFacts& facts) {
  if (facts.power_limit_mw <= facts.power_idle_mw) return facts.power_idle_mw;
  const std::uint64_t span = facts.power_limit_mw - facts.power_idle_mw;
  return facts.power_idle_mw + static_cast<unsigned>(span * kBusyPowerPercent / 100);
}

}  // namespace

bool InUse(const Gpu& gpu) {
  sim::ProcessView view;
  return gpu.state().Processes(gpu.number(), &view, 1) > 0;
}

unsigned TemperatureOf(const Gpu& gpu) {
  const std::uint32_t given = gpu.live().temperature_c.load();
  if (given != sim::kDerived) return given;
  const sim::GpuFacts& facts = gpu.facts();
  const unsigned busy =
      facts.temperature_slowdown_c > kBusyMarginC ? facts.temperature_slowdown_c - kBusyMarginC : 0;
  return Between(facts.temperature_idle_c, busy, gpu.state().Utilization(gpu.number()).gpu);
}

unsigned MemoryTemperatureOf(const Gpu& gpu) {
  const std::uint32_t given = gpu.live().memory_temperature_c.load();
  return given != sim::kDerived ? given : TemperatureOf(gpu) + kMemoryOverCoreC;
}

unsigned PowerOf(const Gpu& gpu) {
  const std::uint32_t given = gpu.live().power_mw.load();
  if (given != sim::kDerived) return given;
  return Between(gpu.facts().power_idle_mw, BusyPower(gpu.facts()),
                 gpu.state().Utilization(gpu.number()).gpu);
}

std::uint64_t EnergyOf(const Gpu& gpu) {
  const sim::GpuFacts& facts = gpu.facts();
  const std::uint64_t created_us = gpu.state().file().created_ns / 1000;
  const std::uint64_t now_us = NowUs();
  const std::uint64_t age_ms = now_us > created_us ? (now_us - created_us) / 1000 : 0;
  const std::uint64_t busy_ms = gpu.state().BusyNs(gpu.number()) / 1000000;
  return gpu.live().energy_base_mj.load() + age_ms * facts.power_idle_mw / 1000 +
         busy_ms * (BusyPower(facts) - facts.power_idle_mw) / 1000;
}

bool ClockOf(const Gpu& gpu, unsigned type, unsigned* mhz) {
  if (gpu.state().Utilization(gpu.number()).gpu > 0) return MaxClockOf(gpu, type, mhz);
  const sim::GpuFacts& facts = gpu.facts();
  const unsigned clocks[] = {facts.clock_graphics_idle, facts.clock_sm_idle, facts.clock_mem_idle,
                             facts.clock_video_idle};
  if (type > kClockVideo) return false;
  *mhz = clocks[type];
  return true;
}

bool MaxClockOf(const Gpu& gpu, unsigned type, unsigned* mhz) {
  const sim::GpuFacts& facts = gpu.facts();
  const unsigned clocks[] = {facts.clock_graphics_max, facts.clock_sm_max, facts.clock_mem_max,
                             facts.clock_video_max};
  if (type > kClockVideo) return false;
  *mhz = clocks[type];
  return true;
}

// Chips from Ampere on stay in P0; older ones sleep in P8 without a context.
unsigned PerformanceStateOf(const Gpu& gpu) {
  return gpu.ampere_or_newer() || InUse(gpu) ? 0 : 8;
}

}  // namespace tessera::nvml
