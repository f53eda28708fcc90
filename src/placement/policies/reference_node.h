// SPDX-License-Identifier: Apache-2.0
// The policies of the FGD experiments divide amounts of CPU and GPU by the size of this node.
// Included only in src/placement.
#pragma once

#include <cstdint>

#include "src/placement/cluster.h"

namespace tessera::placement {

inline constexpr double kReferenceCpuMilli = 128000;
inline constexpr double kReferenceGpuMilli = 8000;

// Sum of the slack of all GPUs of a node.
inline int64_t SlackOfAll(const NodeView& node) {
  int64_t sum = 0;
  for (const GpuState& gpu : node.gpus) sum += gpu.slack;
  return sum;
}

}  // namespace tessera::placement
