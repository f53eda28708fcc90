// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>

#include "src/cli/ledger_command.h"
#include "src/cli/verbs.h"

namespace tessera::cli {
namespace {

Action AddLedgerVerb(CLI::App* app, LedgerVerb verb) {
  auto options = std::make_shared<LedgerCommandOptions>();
  options->verb = verb;
  AddLedgerOptions(app, options.get());
  return [options] { return RunLedgerCommand(*options); };
}

void AddLimitOptions(CLI::App* app, LedgerCommandOptions* options) {
  app->add_option(
         "--memory", options->limits.memory,
         "device memory on each GPU, at most what was granted: 8Gi, CONTAINER=8Gi, GPU_UUID=8Gi, "
         "or a list of these, which replaces the earlier list; \"none\": no limit below the grant")
      ->option_text("AMOUNT");
  app->add_option("--compute", options->limits.compute,
                  "hundredths of each GPU's time, in the same format: 20, CONTAINER=20, "
                  "GPU_UUID=20")
      ->option_text("AMOUNT");
}

// Adds the options that only this verb has.
void AddOwnOptions(CLI::App* app, LedgerCommandOptions* options) {
  constexpr const char* kOfNodes = "only nodes with these labels";
  switch (options->verb) {
    case LedgerVerb::kNodes:
      app->add_option("NODE", options->names, "only these nodes");
      return AddSelectorOption(app, &options->selector, kOfNodes);
    case LedgerVerb::kGpus:
      app->add_option("NODE", options->node, "only this node");
      return AddSelectorOption(app, &options->selector, kOfNodes);
    case LedgerVerb::kPods:
      app->add_option("POD", options->names, "only these pods of the namespace");
      AddNamespaceOption(app, &options->ns);
      AddAllNamespacesOption(app, &options->ns);
      return AddSelectorOption(app, &options->selector, "only pods with these labels");
    case LedgerVerb::kQuota:
      AddNamespaceOption(app, &options->ns, "default: all namespaces");
      return AddAllNamespacesOption(app, &options->ns);
    case LedgerVerb::kInspectGpushare:
      app->add_flag("-d,--details", options->details, "show each pod's share of each GPU");
      app->add_option("NODE", options->node, "only this node");
      return;
    case LedgerVerb::kExplain:
    case LedgerVerb::kLimit:
      app->add_option("POD", options->pod, "NAME or NAMESPACE/NAME")->required();
      return AddNamespaceOption(app, &options->ns);
  }
}

}  // namespace

void AddLedgerOptions(CLI::App* app, LedgerCommandOptions* options) {
  AddOwnOptions(app, options);
  if (options->verb == LedgerVerb::kLimit) {
    AddLimitOptions(app, options);
  } else if (options->verb == LedgerVerb::kExplain) {
    app->add_option("--policy", options->policy, "the scheduler's --policy")->capture_default_str();
    AddOutputOption(app, &options->style);
  } else {
    AddWatchOption(app, &options->watch);
    if (options->verb != LedgerVerb::kInspectGpushare) AddListOptions(app, &options->style);
  }
  AddClusterOptions(app, &options->cluster);
}

Action AddNodes(CLI::App* app) { return AddLedgerVerb(app, LedgerVerb::kNodes); }
Action AddGpus(CLI::App* app) { return AddLedgerVerb(app, LedgerVerb::kGpus); }
Action AddPods(CLI::App* app) { return AddLedgerVerb(app, LedgerVerb::kPods); }
Action AddExplain(CLI::App* app) { return AddLedgerVerb(app, LedgerVerb::kExplain); }
Action AddQuota(CLI::App* app) { return AddLedgerVerb(app, LedgerVerb::kQuota); }
Action AddLimit(CLI::App* app) { return AddLedgerVerb(app, LedgerVerb::kLimit); }
Action AddInspectGpushare(CLI::App* app) {
  return AddLedgerVerb(app, LedgerVerb::kInspectGpushare);
}

}  // namespace tessera::cli
