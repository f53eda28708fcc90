// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/command_line.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

namespace tessera::runtime {
namespace {

// Options of runc 1.1 and crun 1.x that take a value. runc's flag parser (Go's package flag)
// accepts one dash or two.
constexpr std::string_view kGlobalOptionsWithValue[] = {
    "root", "log", "log-format", "criu", "cgroup-manager", "log-level"};
constexpr std::string_view kCreateOptionsWithValue[] = {
    "bundle", "b", "config", "f", "console-socket", "pid-file", "preserve-fds"};
constexpr std::string_view kExecOptionsWithValue[] = {"process",
                                                      "p",
                                                      "console-socket",
                                                      "pid-file",
                                                      "cwd",
                                                      "env",
                                                      "e",
                                                      "user",
                                                      "u",
                                                      "additional-gids",
                                                      "g",
                                                      "process-label",
                                                      "apparmor",
                                                      "cap",
                                                      "c",
                                                      "preserve-fds",
                                                      "cgroup"};

// The list is not complete. The values of update's other options do not begin with a dash, so they
// are skipped like the container's id.
constexpr std::string_view kUpdateOptionsWithValue[] = {"resources", "r"};

struct Option {
  std::string_view name;        // without dashes
  const char* value = nullptr;  // after '='
};

Option ParseOption(const char* argument) {
  const char* name = argument + (argument[1] == '-' ? 2 : 1);
  const char* equals = std::strchr(name, '=');
  if (equals == nullptr) return {name, nullptr};
  return {std::string_view(name, static_cast<size_t>(equals - name)), equals + 1};
}

bool IsOption(const char* argument) { return argument[0] == '-' && argument[1] != '\0'; }

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Calls `on_option` for each option from argv[at] on. Stops at "--", at the end or, unless
// `to_the_end`, at the first argument that is not an option. Returns the index of the first
// argument after the options.
template <typename OnOption>
int WalkOptions(int argc, const char* const* argv, int at, bool to_the_end,
                std::span<const std::string_view> with_value, const OnOption& on_option) {
  for (; at < argc; ++at) {
    if (std::strcmp(argv[at], "--") == 0) return at + 1;
    if (!IsOption(argv[at])) {
      if (to_the_end) continue;
      return at;
    }
    Option option = ParseOption(argv[at]);
    if (option.value == nullptr && Contains(with_value, option.name) && at + 1 < argc) {
      option.value = argv[++at];
    }
    on_option(option);
  }
  return argc;
}

}  // namespace

bool CommandLine::creates_container() const {
  return verb != nullptr && (std::strcmp(verb, "create") == 0 || std::strcmp(verb, "run") == 0);
}

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  const int verb = WalkOptions(argc, argv, 1, /*to_the_end=*/false, kGlobalOptionsWithValue,
                               [&line](const Option& option) {
                                 if (option.name == "log") line.log_file = option.value;
                                 if (option.name == "log-format" && option.value != nullptr) {
                                   line.log_json = std::strcmp(option.value, "json") == 0;
                                 }
                               });
  if (verb >= argc) return line;
  line.verb = argv[verb];
  if (std::strcmp(line.verb, "exec") == 0) {
    WalkOptions(argc, argv, verb + 1, /*to_the_end=*/false, kExecOptionsWithValue,
                [&line](const Option& option) {
                  if (option.name == "process" || option.name == "p")
                    line.process_file = option.value;
                });
  }
  if (std::strcmp(line.verb, "update") == 0) {
    WalkOptions(argc, argv, verb + 1, /*to_the_end=*/true, kUpdateOptionsWithValue,
                [&line](const Option& option) {
                  if (option.name == "resources" || option.name == "r")
                    line.resources_file = option.value;
                });
  }
  if (!line.creates_container()) return line;
  WalkOptions(argc, argv, verb + 1, /*to_the_end=*/true, kCreateOptionsWithValue,
              [&line](const Option& option) {
                if (option.name == "bundle" || option.name == "b") line.bundle = option.value;
                if (option.name == "config" || option.name == "f") line.config_file = option.value;
              });
  return line;
}

}  // namespace tessera::runtime
