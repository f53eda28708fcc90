// SPDX-License-Identifier: Apache-2.0
#include "src/cmd/tessera-operator/flags.h"

#include "src/base/parse_flags.h"

namespace tessera {
void AddOperatorFlags(CLI::App* app, OperatorFlags* flags) {
  operators::OperatorOptions* o = &flags->options;
  o->metrics_address = ":9412";
  flags->resync_s = SecondsOf(o->controller.resync);
  AddTextFlag(app, "--kubeconfig", &o->kubeconfig, "KUBECONFIG",
              "default: the pod's service account");
  AddTextFlag(app, "--metrics-address", &o->metrics_address, "METRICS_ADDRESS",
              "serves /metrics, /healthz and /readyz over HTTP; \"\" does not");
  AddTextFlag(app, "--namespace", &o->ns, "NAMESPACE",
              "namespace of the agents (default: our own)");
  AddSecondsFlag(app, "--resync", &flags->resync_s,
                 "interval between two looks for a ClusterPolicy of NVIDIA's operator");
  AddElectionFlags(app, "write only while holding the Lease; off for a single replica", o,
                   &flags->election);
  AddLogFormatFlag(app, &flags->log_format);
}

operators::OperatorOptions ToOptions(const OperatorFlags& flags) {
  operators::OperatorOptions options = flags.options;
  SetElectionTimes(flags.election, &options);
  options.controller.resync = DurationOf(flags.resync_s);
  return options;
}

}  // namespace tessera
