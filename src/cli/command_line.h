// SPDX-License-Identifier: Apache-2.0
// What was typed: `tessera VERB …`, `kubectl tessera VERB …` or `kubectl inspect gpushare …`, told
// apart by the name of the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/cli/commands.h"

namespace tessera::cli {

enum class Verb : uint8_t {
  kNodes,
  kGpus,
  kPods,
  kExplain,
  kQuota,
  kTop,
  kLimit,
  kInspectGpushare
};

struct CommandLine {
  Verb verb = Verb::kNodes;
  Format format = Format::kTable;
  std::string ns;  // "": that of the kubeconfig's context
  bool all_namespaces = false;
  std::string node;  // gpus, inspect: "" is all
  std::string pod;   // explain, limit: NAME, NAMESPACE/NAME or pod/NAME
  bool details = false;
  bool watch = false;
  bool no_headers = false;      // top
  std::string memory, compute;  // limit
  std::string kubeconfig;
  std::string context;
  std::string policy = "Tessera";
  int timeout_s = 30;
};

// Fills `line`; gives the exit code where that is all (help, version, a mistake, told on stderr).
std::optional<int> ParseCommandLine(int argc, const char* const* argv, CommandLine* line);

}  // namespace tessera::cli
