// SPDX-License-Identifier: Apache-2.0
// Clocks, heat and power, which nothing simulates one by one: they follow from how busy a GPU is,
// unless `simgpu set` gave them a value. Enough that a chart looks right and that figures agree
// with each other (energy is the integral of power); not a model of a chip. What root has set by
// NVML (power limit, clocks) counts. Threads: any.
#pragma once

#include <cstdint>

#include "src/sim/nvml/session.h"

namespace tessera::nvml {

bool InUse(const Gpu& gpu);  // somebody has a context on it
unsigned TemperatureOf(const Gpu& gpu);
unsigned MemoryTemperatureOf(const Gpu& gpu);
bool HasMemoryTemperature(const Gpu& gpu);
unsigned PowerOf(const Gpu& gpu);        // milliwatts
unsigned PowerLimitOf(const Gpu& gpu);   // milliwatts; the default, or what root has set
std::uint64_t EnergyOf(const Gpu& gpu);  // millijoules since the node was made
// False for a clock that there is not.
bool ClockOf(const Gpu& gpu, unsigned type, unsigned* mhz);
bool MaxClockOf(const Gpu& gpu, unsigned type, unsigned* mhz);
// The clock that a busy GPU runs at if nothing holds it down: the highest, or what root has set.
bool ApplicationClockOf(const Gpu& gpu, unsigned type, unsigned* mhz);
unsigned PerformanceStateOf(const Gpu& gpu);
// Bits of ClocksEventReason, which follow from load, heat, power and application clocks.
std::uint64_t EventReasonsOf(const Gpu& gpu);

}  // namespace tessera::nvml
