// SPDX-License-Identifier: Apache-2.0
// Text for a terminal: sanitizing, width, and readable amounts. Annotations and reasons come from
// any user who may write a Pod or a Node, so they reach a terminal only through Printable, which
// TextOutput and Print apply.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/units.h"

namespace tessera::cli {

// Replaces control characters (C0, DEL, C1), line breaks, bidirectional controls and invalid UTF-8
// by U+FFFD.
std::string Printable(std::string_view text);
// Escapes as \u the control characters that Json::Serialize leaves as they are.
std::string PrintableJson(std::string json);
// The number of terminal columns. REQUIRES: the text comes from Printable.
size_t WidthOf(std::string_view text);

// Aligns tab-separated text as Go's text/tabwriter does with padding 2: a cell ends with a tab, and
// the cells of a column in adjacent lines are equally wide. REQUIRES: Printable, except for tabs
// and line ends.
std::string AlignTabs(std::string_view text);

// "5 GiB", "39.6 GiB", "256 MiB", "100 bytes".
std::string MemoryText(Bytes bytes);
// "120/640 GiB", both in the unit of `whole`.
std::string MemoryText(Bytes part, Bytes whole);
// Thousandths as a decimal without trailing zeros: 300 is "0.3".
std::string GpuCountText(int64_t milli);

// Clears a terminal and its scrollback.
inline constexpr const char* kClearScreen = "\033[H\033[2J\033[3J";

// "s" unless n is 1.
inline std::string_view Plural(size_t n) { return n == 1 ? "" : "s"; }

}  // namespace tessera::cli
