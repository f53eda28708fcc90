// SPDX-License-Identifier: Apache-2.0
#include "src/cli/run.h"

#include "src/cli/command_line.h"

namespace tessera::cli {

int RunCli(int argc, const char* const* argv) {
  Action action;
  if (const std::optional<int> done = ParseCommandLine(argc, argv, &action)) return *done;
  return action();
}

}  // namespace tessera::cli
