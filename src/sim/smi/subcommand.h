// SPDX-License-Identifier: Apache-2.0
// Command lines that begin with a word: topo, nvlink, dmon, pmon. Each has options of its own, so
// that "-c" is a count in dmon and capabilities in nvlink. Not for the options without such a word
// (options.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/options.h"

namespace tessera::smi {

bool IsSubcommand(std::string_view word);

// REQUIRES: `arguments` begins with a subcommand. False with the tool's message in *error.
bool ParseSubcommand(const std::vector<std::string>& arguments, Options* options,
                     std::string* error);

}  // namespace tessera::smi
