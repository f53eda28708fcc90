// SPDX-License-Identifier: Apache-2.0
// A study for people and programs. JSON and CSV are equal for every execution; the table also
// contains times.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "src/replay/study.h"

namespace tessera::replay {

// {"runs":[{"policy","seed","points":[{"load","allocation","fragmentation","idle_fragmented"},…],
// "refused":{"none","share",…}},…],"means":[{"policy","points":[…],"refused":{…}},…]}.
// Loads, allocation and fragmentation are percent of all GPUs; idle_fragmented is percent of the
// idle GPUs. "refused" counts GPUs at the last point, but pods for "none", which ask for no GPU.
std::string ToJson(const Study& study);
// A line for each point: policy,seed,load,…, with seed "mean" for means.
std::string ToCsv(const Study& study);
// Means at selected loads. REQUIRES: at least one mean.
std::string ToTable(const Study& study);

}  // namespace tessera::replay
