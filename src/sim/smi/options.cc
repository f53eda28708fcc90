// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/options.h"

#include <fmt/format.h>

#include <string_view>

#include "src/sim/smi/parse_text.h"
#include "src/sim/smi/subcommand.h"

namespace tessera::smi {
namespace {

struct KnownOption {
  std::string_view name;  // the short name, if there is one
  std::string_view long_name;
  bool has_value;
};

constexpr unsigned kMaxLoopMs = 86'400'000;  // a day

constexpr KnownOption kOptions[] = {
    {"-h", "--help", false},     {"--version", "--version", false}, {"-L", "--list-gpus", false},
    {"-q", "--query", false},    {"-x", "--xml-format", false},     {"-d", "--display", true},
    {"-i", "--id", true},        {"-f", "--filename", true},        {"-l", "--loop", true},
    {"-lms", "--loop-ms", true}, {"--format", "--format", true},
};

bool ParseFormat(std::string_view text, SmiOptions* options, std::string* error) {
  for (const std::string_view word : Split(text)) {
    if (word == "csv") {
      options->csv = true;
    } else if (word == "noheader") {
      options->format.header = false;
    } else if (word == "nounits") {
      options->format.units = false;
    } else {
      *error = fmt::format("\"{}\" is not a valid format option.\n", word);
      return false;
    }
  }
  return true;
}

bool ParseLoop(const std::string& text, unsigned unit_ms, SmiOptions* options, std::string* error) {
  unsigned value = 0;
  if (!ParseUnsigned(text, &value) || value == 0 || value > kMaxLoopMs / unit_ms) {
    *error = fmt::format("Invalid loop interval \"{}\".\n", text);
    return false;
  }
  options->loop_ms = value * unit_ms;
  options->rounds = 0;
  return true;
}

bool ApplyWithValue(std::string_view option, const std::string& value, SmiOptions* options,
                    std::string* error) {
  if (option == "-i") return options->ids = value, true;
  if (option == "-d") return options->display_types = value, true;
  if (option == "-f") return options->output = value, true;
  if (option == "-l") return ParseLoop(value, 1000, options, error);
  if (option == "-lms") return ParseLoop(value, 1, options, error);
  return ParseFormat(value, options, error);
}

void ApplySwitch(std::string_view option, SmiOptions* options) {
  if (option == "-L") options->view = View::kList;
  if (option == "-h") options->view = View::kHelp;
  if (option == "--version") options->view = View::kVersion;
  if (option == "-q" && options->view == View::kTable) options->view = View::kLog;
  if (option == "-x") options->view = View::kLogXml;
}

bool ApplyChangeOption(const std::vector<std::string>& arguments, size_t* i, SmiOptions* options,
                       std::string* error) {
  options->view = View::kChange;
  const std::string& argument = arguments[*i];
  if (!TakesValue(options->change)) {
    return argument.find('=') == std::string::npos || NotRecognized(argument, error);
  }
  std::string value;
  if (!TakeValue(arguments, i, &value, error)) return false;
  if (ParseChangeValue(value, &options->change)) return true;
  *error = fmt::format("Invalid value \"{}\" for \"{}\".\n", value, argument);
  return false;
}

const KnownOption* FindOption(std::string_view text) {
  for (const KnownOption& option : kOptions) {
    if (option.name == text || option.long_name == text) return &option;
  }
  return nullptr;
}

}  // namespace

bool NotRecognized(std::string_view argument, std::string* error) {
  *error = fmt::format(
      "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
      "\nOption \"{}\" is not recognized.\n",
      argument);
  return false;
}

bool TakeValue(const std::vector<std::string>& arguments, size_t* i, std::string* value,
               std::string* error) {
  const std::string& argument = arguments[*i];
  const size_t equals = argument.find('=');
  if (equals == std::string::npos && *i + 1 == arguments.size()) {
    return NotRecognized(argument, error);
  }
  *value = equals != std::string::npos ? argument.substr(equals + 1) : arguments[++*i];
  return true;
}

bool ParseOptions(const std::vector<std::string>& arguments, SmiOptions* options,
                  std::string* error) {
  if (!arguments.empty() && IsSubcommand(arguments[0])) {
    return ParseSubcommand(arguments, options, error);
  }
  bool log = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::string name = argument.substr(0, argument.find('='));
    if (FindChange(name, &options->change)) {
      if (!ApplyChangeOption(arguments, &i, options, error)) return false;
      continue;
    }
    if (FindQuery(name, "--query-", &options->query)) {
      options->view = View::kQuery;
      if (!TakeValue(arguments, &i, &options->fields, error)) return false;
      continue;
    }
    if (FindQuery(argument, "--help-query-", &options->query)) {
      options->view = View::kHelpQuery;
      continue;
    }
    const KnownOption* option = FindOption(name);
    if (option == nullptr) return NotRecognized(argument, error);
    if (!option->has_value) {
      if (name != argument) return NotRecognized(argument, error);
      log = log || option->name == "-q";
      ApplySwitch(option->name, options);
      continue;
    }
    std::string value;
    if (!TakeValue(arguments, &i, &value, error)) return false;
    if (!ApplyWithValue(option->name, value, options, error)) return false;
  }
  if (options->view == View::kLogXml && !log) return NotRecognized("-x", error);
  if (options->view == View::kQuery && !options->csv) {
    *error = "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n";
    return false;
  }
  return true;
}

std::string Help() {
  return R"(nvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...

    -h,   --help                    Print this text and exit.
          --version                 Print versions and exit.
    -L,   --list-gpus               List the GPUs of the system.

  Selection and repetition:
    -i,   --id=ID                   Only these GPUs: index, UUID or PCI bus id, comma separated.
    -f,   --filename=FILE           Write to a file instead of standard output.
    -l,   --loop=SEC                Repeat every SEC seconds until interrupted.
    -lms, --loop-ms=MS              Repeat every MS milliseconds.

  Log:
    -q,   --query                   Print all values of the GPUs.
    -x,   --xml-format              The log as XML.
    -d,   --display=TYPE            Only these sections, comma separated: MEMORY, UTILIZATION, ECC,
                                    TEMPERATURE, POWER, CLOCK, COMPUTE, PIDS, PERFORMANCE,
                                    PAGE_RETIREMENT, ROW_REMAPPER, ENCODER_STATS, FBC_STATS,
                                    RESET_STATUS.

  CSV:
          --query-gpu=FIELDS        See --help-query-gpu.
          --query-compute-apps=FIELDS
                                    See --help-query-compute-apps.
          --query-remapped-rows=FIELDS
                                    See --help-query-remapped-rows.
          --query-retired-pages=FIELDS
                                    See --help-query-retired-pages.
          --query-supported-clocks=FIELDS
                                    See --help-query-supported-clocks.
          --format=csv[,noheader][,nounits]

  Changes (root):
    -pm,  --persistence-mode=MODE   0/DISABLED, 1/ENABLED
    -c,   --compute-mode=MODE       0/DEFAULT, 2/PROHIBITED, 3/EXCLUSIVE_PROCESS
    -e,   --ecc-config=MODE         0/DISABLED, 1/ENABLED, from the next boot on
    -p,   --reset-ecc-errors=TYPE   0/VOLATILE, 1/AGGREGATE
    -mig, --multi-instance-gpu=MODE 0/DISABLED, 1/ENABLED
    -pl,  --power-limit=WATTS       Power limit.
    -lgc, --lock-gpu-clocks=MIN,MAX Clocks of the chip, in MHz; -rgc, --reset-gpu-clocks.
    -lmc, --lock-memory-clocks=MIN,MAX
                                    Clocks of the memory; -rmc, --reset-memory-clocks.
    -ac,  --applications-clocks=MEMORY,GRAPHICS
                                    Clocks of a busy GPU; -rac, --reset-applications-clocks.

  Subcommands:
    topo   -m                       How the GPUs are connected.
           -p2p LETTERS             Which GPUs reach each other's memory: r read, w write, n NVLink,
                                    a atomics, p PCIe. With several letters, all must hold.
    nvlink -s, -c, -e               Speed, capabilities, error counters of each link.
    dmon   [-s pucvmet] [-d SEC] [-c COUNT] [-o DT] [-f FILE]
                                    A line for each GPU: power and temperature, utilization, clocks,
                                    violations, memory, errors, PCIe traffic.
    pmon   [-s um] [-d SEC] [-c COUNT] [-o DT] [-f FILE]
                                    A line for each process: utilization, memory.
    mig    -lgip, -lgipp, -lgi, -lci
                                    List profiles, placements, GPU instances, compute instances.
           -cgi PROFILES [-C], -cci [PROFILES] [-gi IDS]
                                    Create instances; a profile is an id or a name, with -cgi also
                                    PROFILE:START. -C adds compute instances.
           -dgi [-gi IDS], -dci [-gi IDS] [-ci IDS]
                                    Destroy instances.
    Every subcommand takes -i ID.
)";
}

}  // namespace tessera::smi
