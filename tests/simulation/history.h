// SPDX-License-Identifier: Apache-2.0
// One history of a small cluster: pods come and go, everything that can break breaks, and in the
// end all of it is mended, deleted, and must be empty. Made of one number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/api_server.h"
#include "tests/simulation/node.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/truth.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

struct HistoryOptions {
  uint64_t seed = 0;
  int nodes = 8;
  int gpus = 4;     // of each node
  int names = 60;   // of pods that come and go
  int past_us = 0;  // percent of pods that come past the scheduler
  Duration chaos = std::chrono::minutes(2);
};

struct Outcome {
  std::string failure;  // empty: everything held
  uint64_t fingerprint = 0;
  size_t events = 0;
  size_t containers = 0;   // that were started
  size_t from_memory = 0;  // of their grants, by agents that had not heard of the API server yet
  size_t stale = 0;        // bindings by replicas that did not lead any more
  size_t repairs = 0;      // evictions of pods in excess
  size_t preemptions = 0;
  std::vector<std::string> last_notes;
};

Outcome Play(const HistoryOptions& options);

}  // namespace tessera::simulation
