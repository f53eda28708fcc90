// SPDX-License-Identifier: Apache-2.0
// Formats a study as JSON, CSV, a text table and an SVG picture. The table contains measured times;
// every other output is the same in every execution.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "src/replay/study.h"

namespace tessera::replay {

// {"runs":[{"policy","seed","points":[{"load","allocation","fragmentation","idle_fragmented"},…],
// "refused":{"none","share",…}},…],"means":[{"policy","points":[…],"refused":{…}},…]}.
// Loads, allocation and fragmentation are percent of all GPUs; idle_fragmented is percent of the
// idle GPUs. "refused" counts GPUs at the last point; for "none", the pods without GPUs, it counts
// pods.
std::string ToJson(const Study& study);
// A line for each point: policy,seed,load,…, with seed "mean" for means.
std::string ToCsv(const Study& study);
// Means at selected loads. REQUIRES: at least one mean.
std::string ToTable(const Study& study);
// One self-contained SVG file: allocation and fragmentation by arrived load, with a line for the
// mean of each policy and a band from its lowest to its highest seed. REQUIRES: at least one mean.
std::string ToSvg(const Study& study);

}  // namespace tessera::replay
