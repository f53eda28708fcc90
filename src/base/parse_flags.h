// SPDX-License-Identifier: Apache-2.0
// Parses the flags of all programs in the same way, with the same exit codes for help, for invalid
// flags and for output that cannot be written. Each program defines its flags with CLI11.
// Threads: one. Cost: CLI11 is linked only into programs that call this.
#pragma once

#include <optional>
#include <string>

#include "src/base/clock.h"

namespace CLI {
class App;
}

namespace tessera {

// Returns nothing if the program may continue, else its exit code:
// - 0 after --help, --version or the command "help", which write to standard output;
// - 64 (EX_USAGE, the code of INVALID_ARGUMENT) after an error, written to standard error;
// - the code of the failed write if standard output is not writable (75 for a full disk).
std::optional<int> ParseFlags(CLI::App* app, int argc, const char* const* argv);

// Adds a flag with a string value, which environment variable `env` can also set. The help shows
// the initial `*value` as the default.
void AddTextFlag(CLI::App* app, const char* flag, std::string* value, const char* env,
                 const char* help);
// Accepts "5s", "500ms" and "1m"; a bare number is in seconds.
void AddSecondsFlag(CLI::App* app, const char* flag, double* seconds, const char* help);
double SecondsOf(Duration duration);
Duration DurationOf(double seconds);

// --log-format: text or json.
void AddLogFormatFlag(CLI::App* app, std::string* format);
void ConfigureLogFormat(const std::string& format);

}  // namespace tessera
