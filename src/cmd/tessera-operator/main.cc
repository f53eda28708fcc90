// SPDX-License-Identifier: Apache-2.0
// tessera-operator: installs Tessera, and keeps it as the Tessera resource describes it.
#include <CLI/CLI.hpp>
#include <string>

#include "src/base/parse_flags.h"
#include "src/base/version.h"
#include "src/cmd/election_flags.h"
#include "src/cmd/run_until_signal.h"
#include "src/operator/operator.h"
#include "src/operator/rendering.h"

namespace {

using namespace tessera;

// Sets the defaults of `options`, which must outlive `app`. A flag overrides its environment
// variable.
void AddOperatorFlags(CLI::App* app, operators::OperatorOptions* options) {
  options->metrics_address = ":9412";
  AddTextFlag(app, "--kubeconfig", &options->kubeconfig, "KUBECONFIG",
              "default: the pod's service account");
  AddTextFlag(app, "--metrics-address", &options->metrics_address, "METRICS_ADDRESS",
              "address of /metrics, /healthz and /readyz over HTTP; \"\": they are not served");
  AddTextFlag(app, "--namespace", &options->ns, "NAMESPACE",
              "namespace of the agents (default: that of this pod)");
  AddSecondsFlag(app, "--resync", &options->controller.cluster_policy_period,
                 "interval between checks for a ClusterPolicy of NVIDIA's operator");
  AddElectionFlags(app, "write only while holding the Lease; off for a single replica", options);
  AddLogFormatFlag(app);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Installs Tessera, and keeps it as the Tessera resource describes it.",
               "tessera-operator"};
  app.set_version_flag("--version", std::string(kTesseraVersion));
  app.footer("SIGTERM releases the Lease.");
  operators::OperatorOptions options;
  AddOperatorFlags(&app, &options);
  if (const auto done = ParseFlags(&app, argc, argv)) return *done;
  return RunUntilSignal<operators::OperatorProgram>("tessera-operator",
                                                    operators::DefaultRendering(), options);
}
