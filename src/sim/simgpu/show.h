// SPDX-License-Identifier: Apache-2.0
// What `simgpu show` and `simgpu unimplemented` print.
#pragma once

#include <string>

#include "src/sim/state.h"

namespace tessera::sim {

std::string ShowText(State* state);
std::string ShowJson(State* state);
std::string ShowUuids(const State& state);
// Names and counts, most called first; both libraries together.
std::string ShowUnimplemented(const State& state);

}  // namespace tessera::sim
