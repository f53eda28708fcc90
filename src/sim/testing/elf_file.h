// SPDX-License-Identifier: Apache-2.0
// For tests: the needed libraries, imported symbols and exported symbols of a program or library,
// read with readelf (package binutils). Threads: any.
#pragma once

#include <string>
#include <vector>

namespace tessera::sim::testing {

// The libraries that the file names as needed (DT_NEEDED), in order.
std::vector<std::string> NeededLibraries(const std::string& file);
// The imported symbols that are newer than glibc 2.`minor`, such as "stat@GLIBC_2.33".
std::vector<std::string> SymbolsNewerThanGlibc(int minor, const std::string& file);
// The exported names, without versions.
std::vector<std::string> ExportedSymbols(const std::string& file);

}  // namespace tessera::sim::testing
