// SPDX-License-Identifier: Apache-2.0
// The output of `simgpu show` and `simgpu unimplemented`.
#pragma once

#include <string>

#include "src/sim/state.h"

namespace tessera::sim {

std::string ShowText(State* state);
std::string ShowJson(State* state);
std::string ShowUuids(const State& state);
// The functions of libcuda and libnvidia-ml that programs called although they are not implemented,
// then the kernels that computed nothing. Each with the number of calls, the most frequent first.
std::string ShowUnimplemented(const State& state);

}  // namespace tessera::sim
