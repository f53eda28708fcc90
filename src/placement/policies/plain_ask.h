// SPDX-License-Identifier: Apache-2.0
// A demand as the default policy looks at it on every node. Private to this room.
#pragma once

#include <algorithm>

#include "src/placement/demand.h"
#include "src/placement/policies/forecast.h"

namespace tessera::placement {

// A demand of at most one ask, without memory of GPUs or GPUs by UUID, that takes one share or whole GPUs: what
// most pods are, and what a NodeSummary is enough for.
struct PlainAsk {
  PlainAsk(const Demand& demand, const Places& own) : demand(demand), own(own) {
    for (const GpuAsk& ask : demand.asks) {
      if (ask.whole() && ask.count > 1) linked = std::max(linked, ask.count);
    }
    if (demand.asks.empty()) {
      plain = true;
    } else if (demand.asks.size() == 1) {
      const GpuAsk& ask = demand.asks[0];
      milli = static_cast<int16_t>(ask.milli.count());
      count = ask.count;
      plain = demand.named.empty() && ask.bytes == Bytes(0) && ask.kind == kWholeDevice && milli > 0 &&
              (ask.whole() || ask.count == 1);
    }
  }
  bool share() const { return count == 1 && milli < 1000; }

  const Demand& demand;
  Places own;      // places of each class that it is itself a pod for
  int linked = 0;  // GPUs of its largest whole ask, where there are several
  int count = 0;
  int16_t milli = 0;
  bool plain = false;
};

}  // namespace tessera::placement
