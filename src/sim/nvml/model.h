// SPDX-License-Identifier: Apache-2.0
// Clocks, heat and power, derived from the utilization of a GPU unless `simgpu inject` has set
// them. Charts look plausible, and values agree with each other (energy is the integral of power);
// not a model of a chip. Settings of root (power limit, clocks) apply. Threads: any.
#pragma once

#include <cstdint>

#include "src/sim/nvml/session.h"

namespace tessera::nvml {

bool InUse(const Gpu& gpu);  // a process has a context on it
unsigned TemperatureOf(const Gpu& gpu);
unsigned MemoryTemperatureOf(const Gpu& gpu);
bool HasMemoryTemperature(const Gpu& gpu);
unsigned PowerOf(const Gpu& gpu);        // milliwatts
unsigned PowerLimitOf(const Gpu& gpu);   // milliwatts; as root has set, or the default
std::uint64_t EnergyOf(const Gpu& gpu);  // millijoules since the creation of the node
// False: no such clock.
bool ClockOf(const Gpu& gpu, unsigned type, unsigned* mhz);
bool MaxClockOf(const Gpu& gpu, unsigned type, unsigned* mhz);
// The clock of a busy GPU that is not throttled: as root has set, or the maximum.
bool ApplicationClockOf(const Gpu& gpu, unsigned type, unsigned* mhz);
unsigned PerformanceStateOf(const Gpu& gpu);
// Bits of ClocksEventReason, derived from load, heat, power and application clocks.
std::uint64_t EventReasonsOf(const Gpu& gpu);

}  // namespace tessera::nvml
