// SPDX-License-Identifier: Apache-2.0
// A study as a picture: allocation and fragmentation by arrived load, with a line for the mean of
// each policy and a band between its extreme seeds. One self-contained SVG file.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "src/replay/study.h"

namespace tessera::replay {

// REQUIRES: at least one mean.
std::string Plot(const Study& study);

}  // namespace tessera::replay
