// SPDX-License-Identifier: Apache-2.0
// The CPUs near each GPU. The state of the simulated node tells the NUMA node of each GPU, but not
// the CPUs of a NUMA node. So the CPUs of the real machine are assigned to the NUMA nodes in equal
// blocks, and pinning works everywhere. Threads: any.
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
