// SPDX-License-Identifier: Apache-2.0
#include "src/cli/run.h"

#include "src/base/file.h"
#include "src/cli/command_line.h"
#include "src/cli/completion.h"

namespace tessera::cli {

int RunCli(int argc, const char* const* argv) {
  if (argc > 0 && BaseName(argv[0]) == "kubectl_complete-tessera") {
    return RunKubectlComplete(argc, argv);
  }
  if (argc > 1 && std::string_view(argv[1]) == "__complete") return RunComplete(argc, argv);
  Action action;
  if (const std::optional<int> done = ParseCommandLine(argc, argv, &action)) return *done;
  return action();
}

}  // namespace tessera::cli
