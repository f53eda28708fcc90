// SPDX-License-Identifier: Apache-2.0
// The size of the node to which the policies of the FGD experiments relate. Included only in
// src/placement.
#pragma once

#include <cstdint>

#include "src/placement/cluster.h"

namespace tessera::placement {

inline constexpr double kReferenceCpu = 128000;
inline constexpr double kReferenceGpu = 8000;

// Thousandths left on all GPUs of a node.
inline int64_t SlackOfAll(const NodeView& node) {
  int64_t sum = 0;
  for (const GpuState& gpu : node.gpus) sum += gpu.slack;
  return sum;
}

}  // namespace tessera::placement
