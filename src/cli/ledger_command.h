// SPDX-License-Identifier: Apache-2.0
// The commands that need the cluster's ledger: nodes, gpus, pods, quota, explain, limit and
// inspect-gpushare. They share one session (session.h). Included only in src/cli.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/cli/limit.h"
#include "src/cli/options.h"
#include "src/placement/policy.h"

namespace tessera::cli {

enum class LedgerVerb : uint8_t {
  kNodes,
  kGpus,
  kPods,
  kExplain,
  kQuota,
  kLimit,
  kInspectGpushare
};

struct LedgerCommandOptions {
  LedgerVerb verb = LedgerVerb::kNodes;
  ClusterOptions cluster;
  NamespaceOptions ns;
  StyleOptions style;
  std::string selector;            // of nodes, or of pods for `pods`
  std::vector<std::string> names;  // nodes, pods: NAME or KIND/NAME; none: all
  std::string node;                // gpus, inspect: NAME or node/NAME; "": all nodes
  std::string pod;                 // explain, limit: NAME, NAMESPACE/NAME or pod/NAME
  bool details = false;
  bool watch = false;
  NewLimits limits;
  std::string policy{placement::kDefaultPolicy};
};

// Adds the options of `options->verb` to `app`.
void AddLedgerOptions(CLI::App* app, LedgerCommandOptions* options);

// Runs the command. Returns an exit code only if it did not read the ledger; otherwise it ends the
// program.
int RunLedgerCommand(const LedgerCommandOptions& options);

}  // namespace tessera::cli
