// SPDX-License-Identifier: Apache-2.0
// Counters of writes to the Node object and of checks of the container engine. Names and help texts
// are in metrics.cc. Threads: any.
#pragma once

#include "src/base/metrics.h"

namespace tessera::agent {

struct NodeMetrics {
  LabeledCounter node_writes;     // by code
  LabeledCounter engine_checks;   // by result
  LabeledCounter engine_repairs;  // by result
};

}  // namespace tessera::agent
