// SPDX-License-Identifier: Apache-2.0
// tessera-scheduler: chooses nodes and GPUs for pods, as an extender of kube-scheduler.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/base/parse_flags.h"
#include "src/base/run_service.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/version.h"
#include "src/cmd/election_flags.h"
#include "src/cmd/run_until_signal.h"
#include "src/net/certificate.h"
#include "src/scheduler/leader_endpoint.h"
#include "src/scheduler/scheduler.h"

namespace tessera {
namespace {

// A flag overrides the environment variable for the same option.
struct SchedulerFlags {
  scheduler::SchedulerOptions options;
  std::string memory_unit = "GiB";
  std::string quota_config_map;
  size_t max_request_mib = 0;
};

void AddServerFlags(CLI::App* app, SchedulerFlags* flags) {
  scheduler::SchedulerOptions* options = &flags->options;
  options->address = ":9410";
  options->metrics_address = ":9411";
  AddTextFlag(app, "--address", &options->address, "ADDRESS", "address of the extender's verbs");
  AddTextFlag(app, "--tls-cert-file", &options->tls.certificate.file, "TLS_CERT_FILE",
              "certificate for the extender's verbs, reloaded when it is replaced; default: the "
              "replicas create the certificates of both sides, kube-scheduler's in Secret "
              "tessera-scheduler-client");
  AddTextFlag(app, "--tls-private-key-file", &options->tls.key.file, "TLS_PRIVATE_KEY_FILE",
              "private key of --tls-cert-file");
  AddTextFlag(
      app, "--client-ca-file", &options->tls.ca.file, "CLIENT_CA_FILE",
      "authority of the callers' certificates: callers without such a certificate are rejected");
  app->add_flag("--insecure-plain-http", options->plain_http,
                "serve the extender's verbs over plain HTTP: every caller that reaches the port "
                "can bind any pod and hold any GPU")
      ->envname("INSECURE_PLAIN_HTTP");
  AddTextFlag(app, "--metrics-address", &options->metrics_address, "METRICS_ADDRESS",
              "address of /metrics, /healthz and /readyz over HTTP; \"\": they are not served");
  AddTextFlag(app, "--otlp-endpoint", &options->otlp_endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT",
              "send the steps of pods' starts as OpenTelemetry spans to this collector, such as "
              "http://otel-collector:4318; \"\": no spans are sent");
  flags->max_request_mib = options->max_request_bytes >> 20;
  app->add_option("--max-request-mib", flags->max_request_mib,
                  "maximum size of a request in MiB; 5,000 whole nodes take about 45")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

void AddPlacementFlags(CLI::App* app, SchedulerFlags* flags) {
  scheduler::SchedulerOptions* options = &flags->options;
  flags->quota_config_map = options->feed.quota_ns + "/" + options->feed.quota_name;
  std::vector<std::string> policies;
  for (const placement::PolicyInfo& policy : placement::Policies()) {
    policies.emplace_back(policy.name);
  }
  app->add_option("--policy", options->ledger.policy, "how nodes and GPUs are chosen")
      ->envname("POLICY")
      ->check(CLI::IsMember(policies, CLI::ignore_case))
      ->capture_default_str();
  app->add_option("--memory-unit", flags->memory_unit,
                  "the unit of aliyun.com/gpu-mem, the same as for the agents: GiB or MiB")
      ->envname("MEMORY_UNIT")
      ->check(CLI::IsMember({"GiB", "MiB"}))
      ->capture_default_str();
  AddTextFlag(app, "--quota-configmap", &flags->quota_config_map, "QUOTA_CONFIGMAP",
              "NAMESPACE/NAME of the quotas");
  AddTextFlag(app, "--quota-key", &options->feed.quota_key, "QUOTA_KEY",
              "key of the quotas in the ConfigMap");
  AddTextFlag(app, "--gpu-model-label", &options->ledger.labels.model, "GPU_MODEL_LABEL",
              "node label with the GPU model to which a quota applies");
  AddTextFlag(app, "--gpu-pool-label", &options->ledger.labels.pool, "GPU_POOL_LABEL",
              "node label with the pool to which a quota applies");
  AddSecondsFlag(app, "--hold", &options->hold.limit_if_failure_invisible,
                 "how long GPUs are held between filter and bind for a pod that failed before, "
                 "unless its nominatedNodeName shows that kube-scheduler still places it");
  AddSecondsFlag(app, "--hold-limit", &options->hold.limit,
                 "maximum hold time while kube-scheduler keeps a pod in Permit or PreBind");
}

void AddAdmissionFlags(CLI::App* app, SchedulerFlags* flags) {
  scheduler::SchedulerOptions* options = &flags->options;
  AddTextFlag(
      app, "--webhook-address", &options->webhook_address, "WEBHOOK_ADDRESS",
      "address of the admission webhook, HTTPS with its own certificates; \"\": no webhook");
  app->add_option("--webhook-names", options->webhook_names,
                  "more host names and addresses under which API servers call the webhook, for a "
                  "clientConfig.url")
      ->delimiter(',')
      ->envname("WEBHOOK_NAMES");
  AddTextFlag(
      app, "--default-runtime-class", &options->default_runtime_class, "DEFAULT_RUNTIME_CLASS",
      "RuntimeClass for pods with GPUs that name no RuntimeClass, if tessera-runtime is not "
      "the engine's default");
}

void AddLeaderElectionFlags(CLI::App* app, SchedulerFlags* flags) {
  scheduler::SchedulerOptions* options = &flags->options;
  AddElectionFlags(app, "lead only while holding the Lease; off for a single replica", options);
  AddTextFlag(
      app, "--advertise-address", &options->advertise_address, "ADVERTISE_ADDRESS",
      "IP address to publish as the endpoint of Service tessera-scheduler, in the namespace of "
      "this pod, while this replica leads; \"\": no address is published");
}

// Sets the defaults of `flags`, which must outlive `app`.
void AddSchedulerFlags(CLI::App* app, SchedulerFlags* flags) {
  AddTextFlag(app, "--kubeconfig", &flags->options.kubeconfig, "KUBECONFIG",
              "default: the pod's service account");
  AddServerFlags(app, flags);
  AddPlacementFlags(app, flags);
  AddAdmissionFlags(app, flags);
  AddLeaderElectionFlags(app, flags);
  AddLogFormatFlag(app);
}

// INVALID_ARGUMENT names the flag.
Result<scheduler::SchedulerOptions> ToOptions(const SchedulerFlags& flags) {
  scheduler::SchedulerOptions options = flags.options;
  const auto parts = Split(flags.quota_config_map, '/');
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return Error(Code::kInvalidArgument,
                 "--quota-configmap: invalid value \"{}\": want NAMESPACE/NAME",
                 flags.quota_config_map);
  }
  options.feed.quota_ns = parts[0];
  options.feed.quota_name = parts[1];
  if (options.tls.certificate.file.empty() != options.tls.key.file.empty()) {
    return Error(Code::kInvalidArgument,
                 "--tls-cert-file and --tls-private-key-file need each other: set both");
  }
  if (options.tls.ca.file.empty() != options.tls.certificate.file.empty()) {
    return Error(
        Code::kInvalidArgument,
        "--tls-cert-file and --client-ca-file go together, because without a client certificate "
        "every caller can bind pods: give both, or neither to have certificates created");
  }
  if (options.plain_http && !options.tls.certificate.file.empty()) {
    return Error(Code::kInvalidArgument,
                 "--insecure-plain-http and --tls-cert-file exclude each other: leave one out");
  }
  if (!options.advertise_address.empty()) {
    RETURN_IF_ERROR(scheduler::CheckIp(options.advertise_address).Annotate("--advertise-address"));
  }
  for (const std::string& name : options.webhook_names) {
    RETURN_IF_ERROR(net::CheckCertificateName(name).Annotate("--webhook-names"));
  }
  if (!options.default_runtime_class.empty() && !IsDnsName(options.default_runtime_class)) {
    return Error(Code::kInvalidArgument,
                 "--default-runtime-class: invalid RuntimeClass name \"{}\": use lower-case "
                 "letters, digits, '-' and '.'",
                 options.default_runtime_class);
  }
  options.ledger.gpu_mem_unit = device::MemoryUnitFromName(flags.memory_unit).value();
  options.max_request_bytes = flags.max_request_mib << 20;
  return options;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  CLI::App app{"Chooses nodes and GPUs for pods, as an extender of kube-scheduler.",
               "tessera-scheduler"};
  app.set_version_flag("--version", std::string(tessera::kTesseraVersion));
  app.footer("SIGTERM completes current bindings and releases the Lease.");
  tessera::SchedulerFlags flags;
  tessera::AddSchedulerFlags(&app, &flags);
  if (const auto done = tessera::ParseFlags(&app, argc, argv)) return *done;
  const auto options = tessera::ToOptions(flags);
  if (!options.ok()) return tessera::LogFailure(options.status());
  return tessera::RunUntilSignal<tessera::scheduler::Scheduler>("tessera-scheduler", *options);
}
