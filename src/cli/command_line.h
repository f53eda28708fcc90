// SPDX-License-Identifier: Apache-2.0
// Parses `tessera VERB …`, `kubectl tessera VERB …` and `kubectl inspect gpushare …`, distinguished
// by the program's name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/cli/commands.h"

namespace tessera::cli {

enum class CliVerb : uint8_t {
  kNodes,
  kGpus,
  kPods,
  kExplain,
  kQuota,
  kTop,
  kLimit,
  kStatus,
  kInspectGpushare,
  kAction
};

struct CliOptions {
  CliVerb verb = CliVerb::kNodes;
  OutputFormat format = OutputFormat::kTable;
  std::string ns;  // "": the namespace of the kubeconfig's context
  bool all_namespaces = false;
  std::string node;  // gpus, inspect; "": all nodes
  std::string pod;   // explain, limit: NAME, NAMESPACE/NAME or pod/NAME
  bool details = false;
  bool watch = false;
  bool wait = false;            // status
  bool no_headers = false;      // top
  std::string memory, compute;  // limit
  std::string kubeconfig;
  std::string context;
  std::string policy = "Tessera";
  int timeout_s = 30;
  std::function<int()> action;  // of kAction: runs it, and returns the exit code
};

// Fills `line`. Returns an exit code if the program must end: after help, version or a usage error.
std::optional<int> ParseCommandLine(int argc, const char* const* argv, CliOptions* line);

}  // namespace tessera::cli
