// SPDX-License-Identifier: Apache-2.0
// The CPUs near each GPU. The simulated node has only the NUMA node of each GPU. The CPUs of the
// real machine are assigned to these nodes in equal blocks, so that pinning works everywhere.
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
