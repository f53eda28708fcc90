// SPDX-License-Identifier: Apache-2.0
#include "src/cmd/tessera-operator/flags.h"

#include <map>

namespace tessera {
namespace {

double SecondsOf(Duration duration) { return std::chrono::duration<double>(duration).count(); }
Duration DurationOf(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

void AddText(CLI::App* app, const char* flag, std::string* to, const char* env, const char* help) {
  app->add_option(flag, *to, help)->envname(env)->capture_default_str();
}

// Accepts "5s", "500ms" and "1m"; a bare number is in seconds.
void AddSeconds(CLI::App* app, const char* flag, double* to, const char* help) {
  static const std::map<std::string, double> units = {{"ms", 0.001}, {"s", 1}, {"m", 60}};
  app->add_option(flag, *to, help)
      ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE))
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
}

}  // namespace

void AddOperatorFlags(CLI::App* app, OperatorFlags* flags) {
  operators::OperatorOptions* o = &flags->options;
  o->metrics_address = ":9412";
  flags->lease_s = SecondsOf(o->election.lease_duration);
  flags->renew_s = SecondsOf(o->election.renew_deadline);
  flags->retry_s = SecondsOf(o->election.retry_period);
  flags->resync_s = SecondsOf(o->controller.resync);
  AddText(app, "--kubeconfig", &o->kubeconfig, "KUBECONFIG", "default: the pod's service account");
  AddText(app, "--metrics-address", &o->metrics_address, "METRICS_ADDRESS",
          "serves /metrics, /healthz and /readyz over HTTP; \"\" does not");
  AddText(app, "--namespace", &o->ns, "NAMESPACE", "namespace of the agents (default: our own)");
  AddSeconds(app, "--resync", &flags->resync_s,
             "interval between two looks for a ClusterPolicy of NVIDIA's operator");
  app->add_flag("--leader-elect,!--no-leader-elect", o->leader_elect,
                "write only while holding the Lease; off for a single replica")
      ->envname("LEADER_ELECT");
  AddText(app, "--leader-elect-resource-namespace", &o->lease_ns, "LEASE_NAMESPACE",
          "namespace of the Lease (default: our own)");
  AddSeconds(app, "--leader-elect-lease-duration", &flags->lease_s,
             "time without a renewal after which another replica may lead");
  AddSeconds(app, "--leader-elect-renew-deadline", &flags->renew_s,
             "time without a renewal after which a leader stops");
  AddSeconds(app, "--leader-elect-retry-period", &flags->retry_s, "interval between attempts");
  app->add_option("--log-format", flags->log_format, "text or json")
      ->envname("LOG_FORMAT")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
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
