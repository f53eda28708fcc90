// SPDX-License-Identifier: Apache-2.0
// Subcommands: topo, nvlink, dmon, pmon, mig. Each has its own options; "-c" is a count in dmon and
// capabilities in nvlink. options.h has the options without a subcommand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/options.h"

namespace tessera::smi {

bool IsSubcommand(std::string_view word);

// REQUIRES: `arguments` begins with a subcommand. False: *error has the tool's message.
bool ParseSubcommand(const std::vector<std::string>& arguments, SmiOptions* options,
                     std::string* error);

}  // namespace tessera::smi
