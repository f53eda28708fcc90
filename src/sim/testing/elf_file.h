// SPDX-License-Identifier: Apache-2.0
// For tests: what a program or library asks of the system that loads it, read with readelf (package
// binutils). Threads: any.
#pragma once

#include <string>
#include <vector>

namespace tessera::sim::testing {

// The libraries that it names as needed, in order.
std::vector<std::string> NeededLibraries(const std::string& file);
// Those of its symbols that need a version of the C library above glibc 2.`minor`
// ("stat@GLIBC_2.33").
std::vector<std::string> SymbolsNewerThanGlibc(int minor, const std::string& file);
// Names that it defines for others, without their versions.
std::vector<std::string> ExportedSymbols(const std::string& file);

}  // namespace tessera::sim::testing
