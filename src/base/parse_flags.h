// SPDX-License-Identifier: Apache-2.0
// Parses the flags of all programs in the same way, with the same exit codes for help, for invalid
// flags and for output that cannot be written. Each program defines its flags with CLI11.
// Threads: one. Cost: CLI11 is linked only into programs that call this.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

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
// Accepts "5s", "500ms" and "1m"; a bare number is in seconds. Calls `set` only if the flag is
// given. The help shows `initial_s` as the default.
void AddSecondsFlag(CLI::App* app, const char* flag, double initial_s,
                    std::function<void(double seconds)> set, const char* help);
// Sets `*value`, a std::chrono::duration, whose initial value is the default.
template <typename D>
void AddSecondsFlag(CLI::App* app, const char* flag, D* value, const char* help) {
  using Seconds = std::chrono::duration<double>;
  AddSecondsFlag(
      app, flag, Seconds(*value).count(),
      [value](double seconds) { *value = std::chrono::duration_cast<D>(Seconds(seconds)); }, help);
}

// --log-format: text or json. Configures the log while the flags are parsed.
void AddLogFormatFlag(CLI::App* app);

}  // namespace tessera
