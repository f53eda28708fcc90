// SPDX-License-Identifier: Apache-2.0
#include "src/base/parse_flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/status.h"

namespace tessera {
namespace {

constexpr char kSeeHelp[] = "Run with --help for more information.\n";

// The innermost command on the command line.
const CLI::App& InnermostCommand(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : InnermostCommand(*named.front());
}

// The word that stands in place of a command, or "" if there is none. CLI11 only reports that a
// command is required, not which word is invalid.
std::string InvalidCommand(const CLI::App& app) {
  const CLI::App& innermost = InnermostCommand(app);
  const std::vector<std::string> remaining = app.remaining(/*recurse=*/true);
  const bool needs_command = innermost.get_require_subcommand_min() > 0;
  return needs_command && !remaining.empty() && !remaining.front().starts_with('-')
             ? remaining.front()
             : "";
}

std::string InvalidCommandError(const CLI::App& app, const std::string& word) {
  const CLI::App& innermost = InnermostCommand(app);
  std::vector<std::string> commands;
  for (const CLI::App* command : innermost.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
  }
  return fmt::format("unknown command \"{}{}\": use one of {}\n{}",
                     &innermost == &app ? "" : innermost.get_name() + " ", word,
                     fmt::join(commands, ", "), kSeeHelp);
}

// CLI11's error about one flag, extended by the form of value that the flag wants. "" if the error
// is not about one flag.
std::string FlagError(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  const CLI::App& innermost = InnermostCommand(app);
  for (const CLI::Option* option : innermost.get_options()) {
    const std::string name = option->get_name();
    const std::string converted = "Could not convert: " + name + " = ";
    if (text.starts_with(converted) && option->get_items_expected_max() == 0) {
      return fmt::format("invalid value \"{}\" of {}: want true, false or no value\n{}",
                         text.substr(converted.size()), name, kSeeHelp);
    }
    if (text == name + ": 1 required " + option->get_type_name() + " missing") {
      const std::string form = option->get_option_text();
      return fmt::format("{} has no value: want {} {}\n{}", name, name,
                         form.empty() ? option->get_type_name() : form, kSeeHelp);
    }
  }
  return "";
}

// Rewrites arguments into forms that CLI11 understands. "--flag=" gives the flag an empty value,
// where CLI11 would take the next argument as its value. "-f=value" is "-fvalue", as in kubectl.
std::vector<std::string> NormalizeArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  bool are_flags = true;  // until "--"
  for (int i = 0; i < argc; ++i) {
    std::string argument = argv[i];
    are_flags = are_flags && argument != "--";
    const bool is_short_with_equals = are_flags && argument.size() > 3 && argument[0] == '-' &&
                                      argument[1] != '-' && argument[2] == '=';
    if (is_short_with_equals) argument.erase(2, 1);
    const bool has_empty_value =
        are_flags && argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    if (has_empty_value) argument.pop_back();
    arguments.push_back(std::move(argument));
    if (has_empty_value) arguments.emplace_back();
  }
  return arguments;
}

// `invalid_command`: "" if the commands are valid.
std::string ErrorText(const CLI::App& app, const std::string& invalid_command,
                      const CLI::ParseError& error) {
  if (!invalid_command.empty()) return InvalidCommandError(app, invalid_command);
  if (std::string text = FlagError(app, error); !text.empty()) return text;
  std::ostringstream unused, text;
  app.exit(error, unused, text);
  return text.str();
}

}  // namespace

std::optional<int> ParseFlags(CLI::App* app, int argc, const char* const* argv) {
  const std::vector<std::string> arguments = NormalizeArguments(argc, argv);
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  try {
    app->parse(static_cast<int>(pointers.size()), pointers.data());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    // The texts are not written to std::cout directly, because it does not report failed writes.
    std::ostringstream out, err;
    const std::string word = InvalidCommand(*app);
    const bool help_or_version = word == "help" || error.get_exit_code() == 0;
    if (word == "help") {
      out << app->help();
    } else if (help_or_version) {
      app->exit(error, out, err);
    } else {
      err << app->get_name() << ": " << ErrorText(*app, word, error);
    }
    const Status write_status = WriteFd(STDOUT_FILENO, out.str());
    if (!write_status.ok())
      err << app->get_name() << ": standard output: " << write_status.message() << '\n';
    // If this write fails as well, only the exit code reports the error.
    (void)WriteFd(STDERR_FILENO, err.str());
    return InfoOf(help_or_version ? write_status.code() : Code::kInvalidArgument).exit_code;
  }
}

void AddTextFlag(CLI::App* app, const char* flag, std::string* value, const char* env,
                 const char* help) {
  app->add_option(flag, *value, help)->envname(env)->capture_default_str();
}

void AddSecondsFlag(CLI::App* app, const char* flag, double initial_s,
                    std::function<void(double seconds)> set, const char* help) {
  static const std::map<std::string, double> units = {{"ms", 0.001}, {"s", 1}, {"m", 60}};
  app->add_option_function<double>(flag, std::move(set), help)
      ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE))
      ->check(CLI::Range(0.001, 86400.0))
      ->default_str(fmt::format("{}", initial_s));
}

void AddLogFormatFlag(CLI::App* app) {
  const auto configure = [](const std::string& format) {
    ConfigureLog({.format = format == "json" ? LogFormat::kJson : LogFormat::kText});
  };
  app->add_option_function<std::string>("--log-format", configure, "text or json")
      ->envname("LOG_FORMAT")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
}

}  // namespace tessera
