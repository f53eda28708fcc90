// SPDX-License-Identifier: Apache-2.0
// Parses `tessera VERB …`, `kubectl tessera VERB …` and `kubectl inspect gpushare …`, distinguished
// by the program's name. verbs.cc registers the verbs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace tessera::cli {

// Runs the parsed command. Returns the exit code.
using Action = std::function<int()>;

struct Verb {
  const char* name;
  const char* help;
  // Adds the verb's options to `app`. The action reads them after parsing.
  Action (*add)(CLI::App* app);
  const char* synonym = nullptr;  // such as "node" for "nodes", as with kubectl
};

std::span<const Verb> Verbs();
// The verb's name if `word` is its synonym, else `word`.
std::string_view ResolveSynonym(std::string_view word);

// The command line of `program`, with all verbs. Sets `action` when a verb is parsed.
std::unique_ptr<CLI::App> MakeCommandLine(std::string_view program, Action* action);

// Returns an exit code if the program must end: after help, version or a usage error.
std::optional<int> ParseCommandLine(int argc, const char* const* argv, Action* action);

// Runs the program, under all its names. A command that reads the cluster's ledger ends the process
// itself; all others return an exit code (sysexits.h, by the table in base/status.cc).
int RunCli(int argc, const char* const* argv);

}  // namespace tessera::cli
