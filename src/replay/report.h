// SPDX-License-Identifier: Apache-2.0
// A study for people and for programs. JSON and CSV hold nothing that differs from one run of the
// program to the next; the table has times as well.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "src/replay/study.h"

namespace tessera::replay {

// {"runs":[{"policy","seed","points":[{"load","allocation","fragmentation","idle_fragmented"},…],
// "refused":{"none","share",…}},…],"means":[{"policy","points":[…],"refused":{…}},…]}. Loads,
// allocation and fragmentation are percent of all GPUs, idle_fragmented is percent of the idle
// ones, refused is GPUs at the last point, and of "none", which ask for no GPU, pods.
std::string ToJson(const Study& study);
// One line for each point: policy,seed,load,…, with seed "mean" for means.
std::string ToCsv(const Study& study);
// Means at the loads that matter. REQUIRES: at least one mean.
std::string ToTable(const Study& study);

}  // namespace tessera::replay
