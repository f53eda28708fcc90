// SPDX-License-Identifier: Apache-2.0
// The CPUs near each GPU. The state of the simulated node has the NUMA node of each GPU, but does
// not say which CPUs belong to a NUMA node. So the CPUs of the real machine are divided into equal
// blocks, one for each NUMA node. A program can therefore be pinned to these CPUs on any machine.
// Threads: any.
#pragma once

#include <cstdint>

#include "src/sim/state.h"

namespace tessera::nvml {

// CPUs [first, end).
struct CpuRange {
  unsigned first = 0;
  unsigned end = 0;

  bool contains(unsigned cpu) const { return cpu >= first && cpu < end; }
};

CpuRange CpusOf(const sim::State& state, std::uint32_t gpu);

}  // namespace tessera::nvml
