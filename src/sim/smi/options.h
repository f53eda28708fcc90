// SPDX-License-Identifier: Apache-2.0
// The command line of nvidia-smi, in NVIDIA's spelling: "-i 0", "--id=0", "-q -x", "topo -m".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/changes.h"
#include "src/sim/smi/query.h"

namespace tessera::smi {

enum class View {
  kTable,
  kList,
  kLog,
  kLogXml,
  kQuery,
  kTopology,
  kP2p,
  kNvLinkStatus,
  kNvLinkCapabilities,
  kNvLinkErrors,
  kDeviceMonitor,
  kProcessMonitor,
  kHelp,
  kHelpQuery,
  kVersion,
  kChange,
  kMig,
};

// The command of the subcommand mig.
struct MigOptions {
  std::string command;        // "-lgip", "-cgi", …
  std::string profiles;       // of -cgi and -cci: ids or names, comma separated
  std::string gpu_instances;  // of -gi: ids, comma separated; "" for all
  std::string compute_instances;
  bool create_compute = false;  // -C: a compute instance in each new GPU instance
};

struct SmiOptions {
  View view = View::kTable;
  std::string ids;                    // of -i: index, UUID or bus id, comma separated; "" for all
  QueryKind query = QueryKind::kGpu;  // for kQuery and kHelpQuery
  std::string fields;                 // for kQuery
  std::string display_types;          // value of -d
  CsvFormat format;
  bool csv = false;               // --format=csv
  Change change;                  // for kChange
  unsigned loop_ms = 0;           // time between two rounds
  unsigned rounds = 1;            // 0: until the program is interrupted
  std::string output;             // value of -f: file instead of standard output
  std::string selected_letters;   // letters of topo -p2p, or of -s in dmon and pmon
  MigOptions mig;                 // for kMig
  std::string timestamp_letters;  // letters of -o in dmon and pmon: D date, T time
};

// False: *error has the tool's message.
bool ParseOptions(const std::vector<std::string>& arguments, SmiOptions* options,
                  std::string* error);

// Writes the tool's message for an unknown argument, and returns false.
bool NotRecognized(std::string_view argument, std::string* error);

// Takes the value of the option at arguments[*i]: the text after "=", or the next argument. Then
// advances *i. False: no value; *error has the message.
bool TakeValue(const std::vector<std::string>& arguments, size_t* i, std::string* value,
               std::string* error);

std::string Help();

}  // namespace tessera::smi
