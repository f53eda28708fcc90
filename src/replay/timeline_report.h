// SPDX-License-Identifier: Apache-2.0
// Timelines for people and programs. The output is equal for every execution.
//
// Threads: pure functions. REQUIRES everywhere: at least one result, by policy.
#pragma once

#include <string>
#include <vector>

#include "src/replay/timeline.h"

namespace tessera::replay {

// {"timelines":[{"policy","seed","nodes","gpus","peak_gpus","gpu_hours","allocation","fragmentation",
// "last_end","never","blocked":{…},"waiting":{"share":{"pods","mean","p50","p99","max"},…},
// "points":[{"seconds","allocation","fragmentation","waiting_gpus"},…]},…]}. Times are seconds.
std::string ToJson(const std::vector<TimelineResult>& results);
// One line for each point.
std::string ToCsv(const std::vector<TimelineResult>& results);
// Means of all seeds for each policy; quantiles over the pods of all seeds.
std::string ToTable(const std::vector<TimelineResult>& results);
// One self-contained SVG file: allocation and fragmentation over time.
std::string ToSvg(const std::vector<TimelineResult>& results);

}  // namespace tessera::replay
