// SPDX-License-Identifier: Apache-2.0
#include "src/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <map>

#include "src/base/file.h"
#include "src/base/parse_flags.h"
#include "src/base/strings.h"
#include "src/base/version.h"
#include "src/cli/install/verbs.h"

namespace tessera::cli {
namespace {

constexpr const char* kInspectName = "kubectl-inspect-gpushare";
constexpr const char* kFooter =
    "Exit codes: 0 success; 64 usage error; 65 invalid quota; 66 no such node or pod; 69 the API "
    "server does not answer;\n75 timeout; 77 no permission; 78 no kubeconfig. Colors only on a "
    "terminal, and not with NO_COLOR.";

const std::map<std::string, OutputFormat>& Formats() {
  static const std::map<std::string, OutputFormat> formats{{"table", OutputFormat::kTable},
                                                           {"wide", OutputFormat::kWide},
                                                           {"json", OutputFormat::kJson},
                                                           {"yaml", OutputFormat::kYaml}};
  return formats;
}

// CLI11's transformer would print its table in errors: "Check foo value in {table->".
std::string ToFormat(std::string& text) {
  const auto found = Formats().find(ToLower(text));
  if (found == Formats().end()) {
    return fmt::format("invalid format \"{}\": want table, wide, json or yaml", text);
  }
  text = std::to_string(static_cast<int>(found->second));
  return "";
}

void AddClusterOptions(CLI::App* app, CliOptions* line) {
  app->add_option("--kubeconfig", line->kubeconfig,
                  "default: $KUBECONFIG, ~/.kube/config, the pod's service account");
  app->add_option("--context", line->context,
                  "context of the kubeconfig; default: the current one");
  app->add_option("--timeout", line->timeout_s, "seconds to wait for the cluster")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
}

void AddOutputOption(CLI::App* app, CliOptions* line) {
  app->add_option("-o,--output", line->format, "table, wide, json or yaml")
      ->transform(CLI::Validator(ToFormat, ""))
      ->option_text("FORMAT");
}

void AddWatchOption(CLI::App* app, CliOptions* line) {
  app->add_flag("-w,--watch", line->watch, "keep running, and print again after each change");
}

void AddNamespaceOptions(CLI::App* app, CliOptions* line, const char* default_help) {
  app->add_option("-n,--namespace", line->ns, default_help);
}

void AddInspectOptions(CLI::App* app, CliOptions* line) {
  app->add_flag("-d,--details", line->details, "show each pod's share of each GPU");
  app->add_option("NODE", line->node, "only this node");
  AddWatchOption(app, line);
  AddClusterOptions(app, line);
}

CLI::App* AddVerb(CLI::App* app, const char* name, const char* help, CliVerb verb,
                  CliOptions* line) {
  CLI::App* sub = app->add_subcommand(name, help);
  sub->callback([verb, line] { line->verb = verb; });
  return sub;
}

void AddLimit(CLI::App* app, CliOptions* line) {
  CLI::App* limit = AddVerb(app, "limit", "lower the GPU limits of a running pod's containers",
                            CliVerb::kLimit, line);
  limit->add_option("POD", line->pod, "NAME or NAMESPACE/NAME")->required();
  limit
      ->add_option(
          "--memory", line->memory,
          "device memory on each GPU, at most what was granted: 8Gi, CONTAINER=8Gi, "
          "GPU_UUID=8Gi, or a list of them, which replaces the one before; \"none\": no limit "
          "below the grant")
      ->option_text("AMOUNT");
  limit
      ->add_option(
          "--compute", line->compute,
          "hundredths of each GPU's time, in the same format: 20, CONTAINER=20, GPU_UUID=20")
      ->option_text("AMOUNT");
  AddNamespaceOptions(limit, line, "default: the context's namespace");
  AddClusterOptions(limit, line);
}

void AddStatus(CLI::App* app, CliOptions* line) {
  CLI::App* status = AddVerb(app, "status", "whether each component works, and what to do if not",
                             CliVerb::kStatus, line);
  status->add_flag("--wait", line->wait, "wait until all of them work, at most --timeout");
  AddOutputOption(status, line);
  AddClusterOptions(status, line);
  status->footer(
      "Exit codes: 0 all works; 1 something does not; 75 it still does not after --wait.");
}

void AddAction(CLI::App* app, const char* name, const char* help,
               std::function<int()> (*add)(CLI::App*), CliOptions* line) {
  CLI::App* sub = app->add_subcommand(name, help);
  sub->callback([line, action = add(sub)] {
    line->verb = CliVerb::kAction;
    line->action = action;
  });
}

void AddVerbs(CLI::App* app, CliOptions* line) {
  AddAction(app, "install", "install Tessera in the cluster", AddInstall, line);
  AddAction(app, "upgrade", "change settings or version of what \"install\" has installed",
            AddUpgrade, line);
  AddAction(app, "uninstall", "remove Tessera from the cluster; pods go on", AddUninstall, line);
  AddStatus(app, line);
  CLI::App* nodes =
      AddVerb(app, "nodes", "GPUs of each node, used and free", CliVerb::kNodes, line);
  CLI::App* gpus =
      AddVerb(app, "gpus", "each GPU: holders, free capacity, health", CliVerb::kGpus, line);
  gpus->add_option("NODE", line->node, "only this node");
  CLI::App* pods =
      AddVerb(app, "pods", "GPU requests of pods, and the GPUs they hold", CliVerb::kPods, line);
  AddNamespaceOptions(pods, line, "default: the context's namespace");
  pods->add_flag("-A,--all-namespaces", line->all_namespaces, "all namespaces");
  CLI::App* explain =
      AddVerb(app, "explain", "why a pod is on its node, or why it waits", CliVerb::kExplain, line);
  explain->add_option("POD", line->pod, "NAME or NAMESPACE/NAME")->required();
  AddNamespaceOptions(explain, line, "default: the context's namespace");
  explain->add_option("--policy", line->policy, "the scheduler's --policy")->capture_default_str();
  CLI::App* quota = AddVerb(app, "quota", "GPUs by namespace and model: used, left, limit",
                            CliVerb::kQuota, line);
  AddNamespaceOptions(quota, line, "default: all namespaces");
  CLI::App* top = AddVerb(app, "top", "GPU usage of containers with a share, from the agents",
                          CliVerb::kTop, line);
  AddNamespaceOptions(top, line, "default: the context's namespace");
  top->add_flag("-A,--all-namespaces", line->all_namespaces, "all namespaces");
  top->add_flag("--no-headers", line->no_headers, "omit the header");
  for (CLI::App* sub : {nodes, gpus, pods, quota, top}) AddWatchOption(sub, line);
  for (CLI::App* sub : {nodes, gpus, pods, explain, quota, top}) {
    AddOutputOption(sub, line);
    AddClusterOptions(sub, line);
  }
  AddLimit(app, line);
  AddInspectOptions(
      AddVerb(app, "inspect-gpushare",
              "device memory by node, in the format of gpushare's \"kubectl inspect gpushare\"",
              CliVerb::kInspectGpushare, line),
      line);
}

}  // namespace

std::optional<int> ParseCommandLine(int argc, const char* const* argv, CliOptions* line) {
  const std::string name = argc > 0 ? BaseName(argv[0]) : "tessera";
  const bool inspect = name == kInspectName;
  const std::string shown = inspect                     ? "kubectl inspect gpushare"
                            : name == "kubectl-tessera" ? "kubectl tessera"
                                                        : "tessera";
  CLI::App app{inspect
                   ? "Shows the device memory of the cluster's nodes, and the pods that hold it."
                   : "Shows the GPUs of a Kubernetes cluster, their holders, and why pods wait.",
               shown};
  app.set_version_flag("--version", std::string(kTesseraVersion));
  app.footer(kFooter);
  if (inspect) {
    line->verb = CliVerb::kInspectGpushare;
    AddInspectOptions(&app, line);
  } else {
    AddVerbs(&app, line);
    app.require_subcommand(1);
  }
  return ParseFlags(&app, argc, argv);
}

}  // namespace tessera::cli
