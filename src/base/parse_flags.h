// SPDX-License-Identifier: Apache-2.0
// A program's flags, read alike in every program: the same exit codes for help, mistakes and an
// output that cannot be written. Not for what the flags are; those are CLI11's.
// Threads: one. Cost: CLI11 is linked only into programs that call this.
#pragma once

#include <optional>

namespace CLI {
class App;
}

namespace tessera {

// Nothing where the program may go on. Else its exit code: 0 after --help, --version or, where the
// program has commands, help on standard output; that of INVALID_ARGUMENT (64, EX_USAGE) after
// telling a mistake on standard error; that of the failed write where standard output took no help
// (a full disk: 75).
std::optional<int> ParseFlags(CLI::App* app, int argc, const char* const* argv);

}  // namespace tessera
