// SPDX-License-Identifier: Apache-2.0
#include "src/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "src/base/file.h"
#include "src/base/parse_flags.h"
#include "src/base/version.h"
#include "src/cli/completion.h"
#include "src/cli/verbs.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kInspectName = "kubectl-inspect-gpushare";
constexpr std::string_view kPluginName = "kubectl-tessera";
constexpr const char* kFooter =
    "Exit codes: 0 success; 1 a problem was found; 64 usage error; 65 invalid quota; 66 no such "
    "node or pod; 69 the API server does\nnot answer; 75 timeout; 77 no permission; 78 no "
    "kubeconfig. Colors only on a terminal, and not with NO_COLOR.";

}  // namespace

std::unique_ptr<CLI::App> MakeCommandLine(std::string_view program, Action* action) {
  if (program == kInspectName) {
    auto app = std::make_unique<CLI::App>(
        "Shows the device memory of the cluster's nodes, and the pods that hold it.",
        "kubectl inspect gpushare");
    *action = AddInspectGpushare(app.get());
    return app;
  }
  auto app = std::make_unique<CLI::App>(
      "Shows the GPUs of a Kubernetes cluster, their holders, and why pods wait; checks the "
      "installation.",
      program == kPluginName ? "kubectl tessera" : "tessera");
  for (const Verb& verb : Verbs()) {
    CLI::App* sub = app->add_subcommand(verb.name, verb.help);
    sub->callback([action, run = verb.add(sub)] { *action = run; });
  }
  app->require_subcommand(1);
  return app;
}

std::optional<int> ParseCommandLine(int argc, const char* const* argv, Action* action) {
  const std::string program = argc > 0 ? BaseName(argv[0]) : "tessera";
  const std::unique_ptr<CLI::App> app = MakeCommandLine(program, action);
  app->set_version_flag("--version", std::string(kTesseraVersion));
  // A verb leaves options that it does not have, such as --version, to the program.
  for (CLI::App* verb : app->get_subcommands([](const CLI::App*) { return true; })) {
    verb->fallthrough();
  }
  app->footer(kFooter);
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && program != kInspectName) words[1] = ResolveSynonym(words[1]).data();
  return ParseFlags(app.get(), argc, words.data());
}

int RunCli(int argc, const char* const* argv) {
  if (argc > 0 && BaseName(argv[0]) == "kubectl_complete-tessera") {
    return RunKubectlComplete(argc, argv);
  }
  if (argc > 1 && std::string_view(argv[1]) == "__complete") return RunComplete(argc, argv);
  Action action;
  if (const std::optional<int> done = ParseCommandLine(argc, argv, &action)) return *done;
  return action();
}

}  // namespace tessera::cli
