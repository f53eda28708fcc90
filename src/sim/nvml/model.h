// SPDX-License-Identifier: Apache-2.0
// Clocks, heat and power, derived from the utilization of a GPU unless `simgpu inject` has set
// them. The values look plausible in charts and agree with each other (energy is the integral of
// power), but do not model a chip. Settings of root (power limit, clocks) apply. Threads: any.
#pragma once

#include <cstdint>

#include "src/sim/nvml/session.h"

namespace tessera::nvml {

bool InUse(const GpuCall& gpu);  // a process has a context on the GPU
unsigned TemperatureOf(const GpuCall& gpu);
unsigned MemoryTemperatureOf(const GpuCall& gpu);
bool HasMemoryTemperature(const GpuCall& gpu);
unsigned PowerOf(const GpuCall& gpu);        // milliwatts
unsigned PowerLimitOf(const GpuCall& gpu);   // milliwatts; set by root, or the default
std::uint64_t EnergyOf(const GpuCall& gpu);  // millijoules since the creation of the node
// False: no such clock.
bool ClockOf(const GpuCall& gpu, unsigned type, unsigned* mhz);
bool MaxClockOf(const GpuCall& gpu, unsigned type, unsigned* mhz);
// The clock of a busy GPU that is not throttled: the value that root has set, or the maximum.
bool ApplicationClockOf(const GpuCall& gpu, unsigned type, unsigned* mhz);
unsigned PerformanceStateOf(const GpuCall& gpu);
// Bits of ClocksEventReason, derived from load, heat, power and application clocks.
std::uint64_t EventReasonsOf(const GpuCall& gpu);

}  // namespace tessera::nvml
