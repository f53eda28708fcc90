// SPDX-License-Identifier: Apache-2.0
// Which CPUs are near which GPU. The simulated node says only the NUMA node of each GPU; the CPUs
// of the machine that we really run on are dealt out to these nodes in equal blocks, so that
// pinning to the answer works everywhere. Threads: any.
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
