// SPDX-License-Identifier: Apache-2.0
// The node that policies of the FGD experiments measure others by. Private to this room.
#pragma once

#include <cstdint>

#include "src/placement/cluster.h"

namespace tessera::placement {

inline constexpr double kReferenceCpu = 128000;
inline constexpr double kReferenceGpu = 8000;

// Thousandths that are left on all GPUs of a node.
inline int64_t SlackOfAll(const NodeView& node) {
  int64_t sum = 0;
  for (const GpuState& gpu : node.gpus) sum += gpu.slack;
  return sum;
}

}  // namespace tessera::placement
