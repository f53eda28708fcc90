// SPDX-License-Identifier: Apache-2.0
// Aligns tab-separated text as Go's text/tabwriter does with padding 2: a cell ends with a tab, and
// the cells of a column in adjacent lines are equally wide. Private to this room.
#pragma once

#include <string>
#include <string_view>

namespace tessera::cli {

// REQUIRES: Printable, except for tabs and line ends.
std::string AlignTabs(std::string_view text);

}  // namespace tessera::cli
