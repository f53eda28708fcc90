// SPDX-License-Identifier: Apache-2.0
// A study as a picture: allocation and fragmentation over arrived load, a line for the mean of each
// policy and a band from its least to its most seed. One SVG file that needs nothing else.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "src/replay/study.h"

namespace tessera::replay {

// REQUIRES: at least one mean.
std::string Plot(const Study& study);

}  // namespace tessera::replay
