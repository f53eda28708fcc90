// SPDX-License-Identifier: Apache-2.0
// Parses flags alike in every program, with the same exit codes for help, mistakes and output that
// cannot be written. Each program defines its flags with CLI11.
// Threads: one. Cost: CLI11 is linked only into programs that call this.
#pragma once

#include <optional>
#include <string>

#include "src/base/clock.h"

namespace CLI {
class App;
}

namespace tessera {

// Nothing if the program may continue, else its exit code. After --help, --version or the help of a
// program with commands, which go to standard output, it is 0. After an error message on standard
// error it is 64 (EX_USAGE, the code of INVALID_ARGUMENT). If standard output is not writable, it
// is the code of the failed write (a full disk: 75).
std::optional<int> ParseFlags(CLI::App* app, int argc, const char* const* argv);

// A text, also from environment variable `env`. The help shows the value of *to as the default.
void AddTextFlag(CLI::App* app, const char* flag, std::string* to, const char* env,
                 const char* help);
// Accepts "5s", "500ms" and "1m"; a bare number is in seconds.
void AddSecondsFlag(CLI::App* app, const char* flag, double* to, const char* help);
double SecondsOf(Duration duration);
Duration DurationOf(double seconds);

// --log-format: text or json.
void AddLogFormatFlag(CLI::App* app, std::string* to);
void ConfigureLogFormat(const std::string& format);

}  // namespace tessera
