// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/subcommand.h"

#include <fmt/format.h>

#include "src/sim/smi/parse_text.h"

namespace tessera::smi {
namespace {

constexpr unsigned kMaxDelaySeconds = 10;  // maximum interval of dmon and pmon
constexpr unsigned kMaxRounds = 1'000'000'000;

bool OnlyLettersOf(std::string_view letters, std::string_view text) {
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

bool ParseUpTo(unsigned max, const std::string& text, unsigned* value) {
  return ParseUnsigned(text, value) && *value > 0 && *value <= max;
}

using Apply = bool (*)(const std::string& value, SmiOptions* options);

template <View view>
bool SelectView(const std::string&, SmiOptions* options) {
  return options->view = view, true;
}

bool SelectP2pView(const std::string& value, SmiOptions* options) {
  options->view = View::kP2p;
  options->selected_letters = value;
  return OnlyLettersOf("rwnap", value);
}

bool SelectDeviceColumns(const std::string& value, SmiOptions* options) {
  return options->selected_letters = value, OnlyLettersOf("pucvmet", value);
}

bool SelectProcessColumns(const std::string& value, SmiOptions* options) {
  return options->selected_letters = value, OnlyLettersOf("um", value);
}

bool SetIds(const std::string& value, SmiOptions* options) {
  return options->ids = value, !value.empty();
}

bool SetOutput(const std::string& value, SmiOptions* options) {
  return options->output = value, !value.empty();
}

bool SetTimestampLetters(const std::string& value, SmiOptions* options) {
  return options->timestamp_letters = value, OnlyLettersOf("DT", value);
}

bool SetRounds(const std::string& value, SmiOptions* options) {
  return ParseUpTo(kMaxRounds, value, &options->rounds);
}

bool SetDelay(const std::string& value, SmiOptions* options) {
  unsigned seconds = 0;
  if (!ParseUpTo(kMaxDelaySeconds, value, &seconds)) return false;
  return options->loop_ms = seconds * 1000, true;
}

template <char const* command>
bool SetMigCommand(const std::string& value, SmiOptions* options) {
  options->view = View::kMig;
  options->mig.command = command;
  return options->mig.profiles = value, true;
}
constexpr char kListProfiles[] = "-lgip", kListPlacements[] = "-lgipp", kListInstances[] = "-lgi",
               kListCompute[] = "-lci", kCreate[] = "-cgi", kCreateCompute[] = "-cci",
               kDestroy[] = "-dgi", kDestroyCompute[] = "-dci";

bool SetGpuInstances(const std::string& value, SmiOptions* options) {
  return options->mig.gpu_instances = value, !value.empty();
}
bool SetComputeInstances(const std::string& value, SmiOptions* options) {
  return options->mig.compute_instances = value, !value.empty();
}
bool SetCreateCompute(const std::string&, SmiOptions* options) {
  return options->mig.create_compute = true;
}

struct Argument {
  std::string_view subcommand;
  std::string_view short_name;
  std::string_view long_name;
  bool has_value;
  Apply apply;
  bool may_have_value = false;
};

constexpr Argument kArguments[] = {
    {"topo", "-m", "--matrix", false, SelectView<View::kTopology>},
    {"topo", "-p2p", "--p2pstatus", true, SelectP2pView},
    {"topo", "-i", "--id", true, SetIds},
    {"nvlink", "-s", "--status", false, SelectView<View::kNvLinkStatus>},
    {"nvlink", "-c", "--capabilities", false, SelectView<View::kNvLinkCapabilities>},
    {"nvlink", "-e", "--errorcounters", false, SelectView<View::kNvLinkErrors>},
    {"nvlink", "-i", "--id", true, SetIds},
    {"dmon", "-s", "--select", true, SelectDeviceColumns},
    {"dmon", "-i", "--id", true, SetIds},
    {"dmon", "-d", "--delay", true, SetDelay},
    {"dmon", "-c", "--count", true, SetRounds},
    {"dmon", "-o", "--options", true, SetTimestampLetters},
    {"dmon", "-f", "--filename", true, SetOutput},
    {"pmon", "-s", "--select", true, SelectProcessColumns},
    {"pmon", "-i", "--id", true, SetIds},
    {"pmon", "-d", "--delay", true, SetDelay},
    {"pmon", "-c", "--count", true, SetRounds},
    {"pmon", "-o", "--options", true, SetTimestampLetters},
    {"pmon", "-f", "--filename", true, SetOutput},
    {"mig", "-i", "--id", true, SetIds},
    {"mig", "-lgip", "--list-gpu-instance-profiles", false, SetMigCommand<kListProfiles>},
    {"mig", "-lgipp", "--list-gpu-instance-possible-placements", false,
     SetMigCommand<kListPlacements>},
    {"mig", "-lgi", "--list-gpu-instances", false, SetMigCommand<kListInstances>},
    {"mig", "-lci", "--list-compute-instances", false, SetMigCommand<kListCompute>},
    {"mig", "-cgi", "--create-gpu-instance", true, SetMigCommand<kCreate>},
    {"mig", "-cci", "--create-compute-instance", false, SetMigCommand<kCreateCompute>, true},
    {"mig", "-dgi", "--destroy-gpu-instance", false, SetMigCommand<kDestroy>},
    {"mig", "-dci", "--destroy-compute-instance", false, SetMigCommand<kDestroyCompute>},
    {"mig", "-gi", "--gpu-instance-id", true, SetGpuInstances},
    {"mig", "-ci", "--compute-instance-id", true, SetComputeInstances},
    {"mig", "-C", "--default-compute-instance", false, SetCreateCompute},
};

const Argument* FindArgument(std::string_view subcommand, std::string_view text) {
  for (const Argument& known_argument : kArguments) {
    if (known_argument.subcommand != subcommand) continue;
    if (known_argument.short_name == text || known_argument.long_name == text)
      return &known_argument;
  }
  return nullptr;
}

// Sets the default values of a subcommand.
void SetDefaults(std::string_view subcommand, SmiOptions* options) {
  if (subcommand != "dmon" && subcommand != "pmon") return;
  options->view = subcommand == "dmon" ? View::kDeviceMonitor : View::kProcessMonitor;
  options->selected_letters = subcommand == "dmon" ? "puc" : "u";
  options->loop_ms = 1000;
  options->rounds = 0;
}

}  // namespace

bool IsSubcommand(std::string_view word) {
  for (const Argument& known_argument : kArguments) {
    if (known_argument.subcommand == word) return true;
  }
  return false;
}

bool ParseSubcommand(const std::vector<std::string>& arguments, SmiOptions* options,
                     std::string* error) {
  const std::string& subcommand = arguments[0];
  SetDefaults(subcommand, options);
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::string name = argument.substr(0, argument.find('='));
    const Argument* known_argument = FindArgument(subcommand, name);
    if (known_argument == nullptr || (!known_argument->has_value && name != argument)) {
      return NotRecognized(argument, error);
    }
    std::string value;
    const bool next_is_value = i + 1 < arguments.size() && arguments[i + 1][0] != '-';
    if (known_argument->may_have_value && next_is_value) value = arguments[++i];
    if (known_argument->has_value && !TakeValue(arguments, &i, &value, error)) return false;
    if (!known_argument->apply(value, options)) {
      *error = fmt::format("Invalid value \"{}\" for \"{}\".\n", value, known_argument->short_name);
      return false;
    }
  }
  return options->view != View::kTable || NotRecognized(subcommand, error);
}

}  // namespace tessera::smi
