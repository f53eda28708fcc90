// SPDX-License-Identifier: Apache-2.0
#include "src/base/parse_flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "src/base/file.h"
#include "src/base/status.h"

namespace tessera {

std::optional<int> ParseFlags(CLI::App* app, int argc, const char* const* argv) {
  try {
    app->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    // Not straight to std::cout, which does not tell that a write has failed.
    std::ostringstream out, err;
    const bool asked = app->exit(error, out, err) == 0;
    const Status told = WriteFd(STDOUT_FILENO, out.str());
    if (!told.ok()) err << app->get_name() << ": standard output: " << told.message() << '\n';
    // Where this one fails too, the exit code is all there is.
    (void)WriteFd(STDERR_FILENO, err.str());
    return InfoOf(asked ? told.code() : Code::kInvalidArgument).exit_code;
  }
}

}  // namespace tessera
