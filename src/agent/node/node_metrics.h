// SPDX-License-Identifier: Apache-2.0
// Counters of writes to the Node object and of checks of the container engine. Names and help texts
// are in metrics.cc. Threads: any.
#pragma once

#include "src/base/metrics.h"

namespace tessera::agent {

struct NodeMetrics {
  LabelledCounter node_writes;     // by code
  LabelledCounter engine_checks;   // by result
  LabelledCounter engine_repairs;  // by result
};

}  // namespace tessera::agent
