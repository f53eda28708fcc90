// SPDX-License-Identifier: Apache-2.0
// One history of a small cluster, derived from one seed: pods are created and deleted under all
// kinds of faults. In the end all faults stop, all pods are deleted, and all ledgers must be empty.
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
  int gpus = 4;                              // of each node
  int names = 60;                            // number of pod names
  int bypass_percent = 0;                    // percent of pods that bypass the scheduler
  Duration chaos = std::chrono::minutes(2);  // how long faults happen
};

struct Outcome {
  std::string failure;  // empty: all invariants held
  uint64_t fingerprint = 0;
  size_t events = 0;
  size_t containers = 0;          // started containers
  size_t grants_from_memory = 0;  // grants by agents that had not reached the API server yet
  size_t stale_bindings = 0;      // bindings by former leaders
  size_t repairs = 0;             // evictions of newer pods of oversubscribed GPUs
  size_t preemptions = 0;
  std::vector<std::string> last_notes;
};

Outcome Play(const HistoryOptions& options);

}  // namespace tessera::simulation
