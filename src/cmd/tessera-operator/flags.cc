// SPDX-License-Identifier: Apache-2.0
#include "src/cmd/tessera-operator/flags.h"

#include "src/base/parse_flags.h"

namespace tessera {
void AddOperatorFlags(CLI::App* app, OperatorFlags* flags) {
  operators::OperatorOptions* o = &flags->options;
  o->metrics_address = ":9412";
  flags->lease_s = SecondsOf(o->election.lease_duration);
  flags->renew_s = SecondsOf(o->election.renew_deadline);
  flags->retry_s = SecondsOf(o->election.retry_period);
  flags->resync_s = SecondsOf(o->controller.resync);
  AddTextFlag(app, "--kubeconfig", &o->kubeconfig, "KUBECONFIG",
              "default: the pod's service account");
  AddTextFlag(app, "--metrics-address", &o->metrics_address, "METRICS_ADDRESS",
              "serves /metrics, /healthz and /readyz over HTTP; \"\" does not");
  AddTextFlag(app, "--namespace", &o->ns, "NAMESPACE",
              "namespace of the agents (default: our own)");
  AddSecondsFlag(app, "--resync", &flags->resync_s,
                 "interval between two looks for a ClusterPolicy of NVIDIA's operator");
  app->add_flag("--leader-elect,!--no-leader-elect", o->leader_elect,
                "write only while holding the Lease; off for a single replica")
      ->envname("LEADER_ELECT");
  AddTextFlag(app, "--leader-elect-resource-namespace", &o->lease_ns, "LEASE_NAMESPACE",
              "namespace of the Lease (default: our own)");
  AddSecondsFlag(app, "--leader-elect-lease-duration", &flags->lease_s,
                 "time without a renewal after which another replica may lead");
  AddSecondsFlag(app, "--leader-elect-renew-deadline", &flags->renew_s,
                 "time without a renewal after which a leader stops");
  AddSecondsFlag(app, "--leader-elect-retry-period", &flags->retry_s, "interval between attempts");
  AddLogFormatFlag(app, &flags->log_format);
}

operators::OperatorOptions ToOptions(const OperatorFlags& flags) {
  operators::OperatorOptions options = flags.options;
  options.election.lease_duration = std::chrono::seconds(static_cast<int64_t>(flags.lease_s));
  options.election.renew_deadline = DurationOf(flags.renew_s);
  options.election.retry_period = DurationOf(flags.retry_s);
  options.controller.resync = DurationOf(flags.resync_s);
  return options;
}

}  // namespace tessera
