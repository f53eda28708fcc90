// SPDX-License-Identifier: Apache-2.0
// A study as JSON, CSV, a table and a picture. All but the table are equal for every execution; the
// table also contains times.
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
// mean of each policy and a band between its extreme seeds. REQUIRES: at least one mean.
std::string ToSvg(const Study& study);

}  // namespace tessera::replay
