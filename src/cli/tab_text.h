// SPDX-License-Identifier: Apache-2.0
// Aligns text with tabs as Go's text/tabwriter does with padding 2: a cell ends with a tab, and
// cells of adjacent lines that stand above each other are equally wide. Private to this room.
#pragma once

#include <string>
#include <string_view>

namespace tessera::cli {

// REQUIRES: Printable but for tabs and line ends.
std::string AlignTabs(std::string_view text);

}  // namespace tessera::cli
