// SPDX-License-Identifier: Apache-2.0
// tessera-agent: offers a node's GPUs to Kubernetes and answers the runtime's grant requests.
#include <CLI/CLI.hpp>
#include <string>

#include "src/agent/agent.h"
#include "src/agent/supervisor.h"
#include "src/base/parse_flags.h"
#include "src/base/version.h"
#include "src/cmd/tessera-agent/flags.h"

int main(int argc, char** argv) {
  CLI::App app{"Offers the GPUs of this node to Kubernetes, whole and shared.", "tessera-agent"};
  app.set_version_flag("--version", std::string(tessera::kTesseraVersion));
  app.footer(
      "DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS select XIDs as in NVIDIA's "
      "device plugin.\nSIGHUP rescans all GPUs at once; SIGTERM unregisters from the "
      "kubelet, running pods continue.");
  tessera::AgentFlags flags;
  tessera::AddAgentFlags(&app, &flags);
  if (const auto done = tessera::ParseFlags(&app, argc, argv)) return *done;
  tessera::ConfigureLogFormat(flags.log_format);
  const auto run = [&flags] { return tessera::agent::RunAgent(tessera::ToOptions(flags)); };
  return flags.runs_supervised ? tessera::agent::Supervise(run) : run();
}
