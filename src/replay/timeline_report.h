// SPDX-License-Identifier: Apache-2.0
// Formats timelines as JSON, CSV, a text table and an SVG picture. The output is the same in every
// execution.
//
// Threads: pure functions. All functions require at least one result, and results in the order of
// RunTimelines.
#pragma once

#include <string>
#include <vector>

#include "src/replay/timeline.h"

namespace tessera::replay {

// {"timelines":[{"policy","seed","nodes","gpus","peak_gpus","pods","seconds","gpu_hours",
// "allocation","fragmentation","mean_wait","last_end","never","blocked":{…},
// "waiting":{"share":{"pods","mean","p50","p99","max"},…},
// "points":[{"seconds","allocation","fragmentation","waiting_gpus"},…]},…]}. Times are seconds.
// "last_end": when the last pod ended; "never": pods that fit on no node, even on an empty one;
// "blocked": see BlockedPods.
std::string ToJson(const std::vector<TimelineResult>& results);
// A line for each point.
std::string ToCsv(const std::vector<TimelineResult>& results);
// A text table with one row for each policy: means over all seeds, and quantiles over the pods of
// all seeds.
std::string ToTable(const std::vector<TimelineResult>& results);
// One self-contained SVG file: allocation and fragmentation over time.
std::string ToSvg(const std::vector<TimelineResult>& results);

}  // namespace tessera::replay
