// SPDX-License-Identifier: Apache-2.0
#include "src/sim/testing/elf_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

#include "src/base/subprocess.h"

namespace tessera::sim::testing {
namespace {

std::istringstream ReadElf(const std::string& section_option, const std::string& file) {
  const auto result =
      RunProgram({"readelf", "--wide", section_option, file}, std::chrono::seconds(60));
  EXPECT_TRUE(result.ok() && result->exit_code == 0) << "readelf, of package binutils, is missing";
  return std::istringstream(result.ok() ? result->out : "");
}

// Calls `visit` with section and versioned name of each dynamic symbol.
template <typename Visit>
void ForEachSymbol(const std::string& file, Visit visit) {
  std::istringstream lines = ReadElf("--dyn-syms", file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream columns(line);
    std::string number, value, size, type, binding, visibility, section, name;
    columns >> number >> value >> size >> type >> binding >> visibility >> section >> name;
    if (binding == "GLOBAL" || binding == "WEAK") visit(section, name);
  }
}

}  // namespace

std::vector<std::string> NeededLibraries(const std::string& file) {
  std::istringstream lines = ReadElf("--dynamic", file);
  std::vector<std::string> needed;
  for (std::string line; std::getline(lines, line);) {
    const size_t name = line.find('[');
    if (line.find("(NEEDED)") == std::string::npos) continue;
    needed.push_back(line.substr(name + 1, line.find(']') - name - 1));
  }
  return needed;
}

std::vector<std::string> SymbolsNewerThanGlibc(int minor, const std::string& file) {
  std::vector<std::string> newer;
  int versioned = 0;
  ForEachSymbol(file, [&](const std::string&, const std::string& name) {
    int found = 0;
    const size_t at = name.find("@GLIBC_2.");
    if (at == std::string::npos || std::sscanf(name.c_str() + at, "@GLIBC_2.%d", &found) != 1)
      return;
    ++versioned;
    if (found > minor) newer.push_back(name);
  });
  EXPECT_GT(versioned, 5) << file << ": its symbols could not be read";
  return newer;
}

std::vector<std::string> ExportedSymbols(const std::string& file) {
  std::vector<std::string> exported;
  ForEachSymbol(file, [&](const std::string& section, const std::string& name) {
    if (section != "UND") exported.push_back(name.substr(0, name.find('@')));
  });
  return exported;
}

}  // namespace tessera::sim::testing
