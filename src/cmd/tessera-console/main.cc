// SPDX-License-Identifier: Apache-2.0
// tessera-console: shows the GPUs of a cluster in a browser.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

#include "src/base/parse_flags.h"
#include "src/base/run_service.h"
#include "src/base/strings.h"
#include "src/base/version.h"
#include "src/console/console.h"

namespace tessera {
namespace {

struct ConsoleFlags {
  console::ConsoleOptions options;
  std::string listen = "127.0.0.1:8090";
  std::string metrics_address;
  std::string quota_config_map = "kube-system/gpuquota";
  std::string usage_label = "app.kubernetes.io/name";
  std::string other_tenants_view = "shares";
  std::string prometheus_url, prometheus_ca_file;
  console::PrometheusOptions prometheus_access;
  std::string tls_certificate_file, tls_key_file;
  console::OidcOptions oidc;
  std::string oidc_ca_file;
};

void AddPrometheusFlags(CLI::App* app, ConsoleFlags* flags) {
  AddTextFlag(app, "--prometheus-url", &flags->prometheus_url, "PROMETHEUS_URL",
              "URL of a Prometheus that scrapes the agents, for curves over hours");
  AddTextFlag(app, "--prometheus-ca-file", &flags->prometheus_ca_file, "PROMETHEUS_CA_FILE",
              "file with the authorities of Prometheus's certificate; default: the system's");
  AddTextFlag(app, "--prometheus-token-file", &flags->prometheus_access.token_file,
              "PROMETHEUS_TOKEN_FILE",
              "file with a bearer token for Prometheus, read again for each query");
  AddTextFlag(app, "--prometheus-basic-auth-dir", &flags->prometheus_access.basic_auth_dir,
              "PROMETHEUS_BASIC_AUTH_DIR",
              "folder with files username and password for Prometheus, such as a Secret of type "
              "kubernetes.io/basic-auth, read again for each query");
}

void AddOidcFlags(CLI::App* app, ConsoleFlags* flags) {
  console::OidcOptions& oidc = flags->oidc;
  AddTextFlag(app, "--oidc-issuer-url", &oidc.issuer, "OIDC_ISSUER_URL",
              "URL of an OpenID Connect issuer with which users can log in, beside logins with "
              "tokens; the API server must accept its ID tokens");
  AddTextFlag(app, "--oidc-client-id", &oidc.client_id, "OIDC_CLIENT_ID",
              "the API server's --oidc-client-id");
  AddTextFlag(
      app, "--oidc-client-secret-file", &oidc.client_secret_file, "OIDC_CLIENT_SECRET_FILE",
      "file with the client's secret, read again at each login; default: a public client without "
      "a secret");
  AddTextFlag(app, "--oidc-ca-file", &flags->oidc_ca_file, "OIDC_CA_FILE",
              "file with the authorities of the issuer's certificate; default: the system's");
  AddTextFlag(app, "--oidc-scopes", &oidc.scopes, "OIDC_SCOPES",
              "scopes to request, separated by spaces, such as \"openid email groups\"");
  AddTextFlag(app, "--oidc-redirect-url", &oidc.redirect_url, "OIDC_REDIRECT_URL",
              "URL of this console's page /oidc/callback, which the issuer must allow: "
              "https://CONSOLE/oidc/callback");
}

void AddConsoleFlags(CLI::App* app, ConsoleFlags* flags) {
  AddTextFlag(app, "--kubeconfig", &flags->options.kubeconfig, "KUBECONFIG",
              "default: the pod's service account");
  AddTextFlag(app, "--context", &flags->options.context, "CONTEXT", "context of the kubeconfig");
  AddTextFlag(app, "--listen", &flags->listen, "LISTEN",
              "address and port to listen on; port 0: any port");
  AddTextFlag(
      app, "--metrics-address", &flags->metrics_address, "METRICS_ADDRESS",
      "address of /metrics and /healthz over HTTP, without login; default: they are not served");
  AddTextFlag(app, "--tls-cert-file", &flags->tls_certificate_file, "TLS_CERT_FILE",
              "certificate for HTTPS, read again after it is replaced; default: HTTP");
  AddTextFlag(app, "--tls-private-key-file", &flags->tls_key_file, "TLS_PRIVATE_KEY_FILE",
              "private key of --tls-cert-file");
  app->add_flag("--behind-https", flags->options.behind_https_proxy,
                "a proxy serves HTTPS: browsers then send the session's cookie over HTTPS only");
  app->add_flag(
      "--dashboard", flags->options.dashboard,
      "serve one user on this machine, with the kubeconfig's rights, and print the address to "
      "open");
  AddTextFlag(app, "--quota-configmap", &flags->quota_config_map, "QUOTA_CONFIGMAP",
              "NAMESPACE/NAME of the quotas");
  AddTextFlag(
      app, "--usage-label", &flags->usage_label, "USAGE_LABEL",
      "label of pods by which the console adds up GPU-hours; \"\": it does not add them up");
  AddTextFlag(app, "--other-tenants", &flags->other_tenants_view, "OTHER_TENANTS",
              "what users see of pods that they may not list: namespaces, shares (each part of a "
              "GPU) or sums (how much of a GPU is in use)");
  AddPrometheusFlags(app, flags);
  AddOidcFlags(app, flags);
  AddLogFormatFlag(app);
}

bool IsLoopback(const std::string& host) {
  return host == "127.0.0.1" || host == "::1" || host == "localhost";
}

// The authorities in `file`, or the system's. An error names the flag.
Result<net::PemSource> AuthoritiesOf(const std::string& file, std::string_view url_flag,
                                     std::string_view file_flag) {
  net::PemSource authorities;
  authorities.file = file;
  if (file.empty()) {
    const auto roots = net::SystemRoots(::getenv);
    if (!roots.ok()) {
      return roots.status().Annotate(fmt::format("{} needs {}", url_flag, file_flag));
    }
    authorities = *roots;
  }
  const Status checked = net::CheckAuthorities(authorities);
  if (!checked.ok()) return checked.Annotate(file_flag);
  return authorities;
}

Result<console::PrometheusOptions> PrometheusOf(const ConsoleFlags& flags) {
  console::PrometheusOptions options = flags.prometheus_access;
  if (flags.prometheus_url.empty()) {
    return Error(Code::kInvalidArgument,
                 "--prometheus-ca-file, --prometheus-token-file and --prometheus-basic-auth-dir "
                 "need --prometheus-url: set it too");
  }
  const Result<net::Url> url = net::ParseUrl(flags.prometheus_url);
  if (!url.ok()) return url.status().Annotate("--prometheus-url");
  if (!options.token_file.empty() && !options.basic_auth_dir.empty()) {
    return Error(Code::kInvalidArgument,
                 "--prometheus-token-file and --prometheus-basic-auth-dir exclude each other: set "
                 "one");
  }
  options.client.server = *url;
  if (url->tls) {
    ASSIGN_OR_RETURN(
        options.client.tls.ca,
        AuthoritiesOf(flags.prometheus_ca_file, "--prometheus-url", "--prometheus-ca-file"));
  } else if (!flags.prometheus_ca_file.empty()) {
    return Error(Code::kInvalidArgument,
                 "--prometheus-ca-file is for an https URL, not for --prometheus-url={}: leave it "
                 "out",
                 flags.prometheus_url);
  }
  RETURN_IF_ERROR(console::PrometheusAuthorization(options).status());
  return options;
}

Result<console::OidcOptions> OidcOf(const ConsoleFlags& flags) {
  console::OidcOptions oidc = flags.oidc;
  RETURN_IF_ERROR(console::CheckOidcOptions(oidc));
  if (flags.options.dashboard) {
    return Error(Code::kInvalidArgument,
                 "--dashboard uses the kubeconfig of one user: leave --oidc-issuer-url out");
  }
  ASSIGN_OR_RETURN(oidc.authorities,
                   AuthoritiesOf(flags.oidc_ca_file, "--oidc-issuer-url", "--oidc-ca-file"));
  return oidc;
}

Result<console::ConsoleOptions> ToOptions(const ConsoleFlags& flags) {
  console::ConsoleOptions options = flags.options;
  const Result<net::Address> listen = net::ParseAddress(flags.listen);
  if (!listen.ok()) return listen.status().Annotate("--listen");
  options.listen = *listen;
  if (!flags.metrics_address.empty()) {
    ASSIGN_OR_RETURN(options.metrics_listen,
                     net::ParseAddress(flags.metrics_address).Annotate("--metrics-address"));
  }
  if (flags.tls_certificate_file.empty() != flags.tls_key_file.empty()) {
    return Error(Code::kInvalidArgument,
                 "--tls-cert-file and --tls-private-key-file need each other: set both");
  }
  if (!flags.tls_certificate_file.empty()) {
    options.tls.emplace();
    options.tls->certificate.file = flags.tls_certificate_file;
    options.tls->key.file = flags.tls_key_file;
    options.tls->http2 = true;
  }
  if (options.dashboard && !IsLoopback(options.listen.host)) {
    return Error(Code::kInvalidArgument,
                 "--dashboard gives the kubeconfig's rights to every client that has its address, "
                 "so --listen must be 127.0.0.1 or [::1], not \"{}\"",
                 flags.listen);
  }
  if (!options.tls && !options.behind_https_proxy && !options.dashboard &&
      options.listen.unix_path.empty() && !IsLoopback(options.listen.host)) {
    return Error(Code::kInvalidArgument,
                 "--listen={} would accept tokens over HTTP: add --tls-cert-file and "
                 "--tls-private-key-file, or --behind-https behind a proxy that serves HTTPS",
                 flags.listen);
  }
  if (options.dashboard && options.tls) {
    return Error(Code::kInvalidArgument, "--dashboard serves HTTP: leave --tls-cert-file out");
  }
  const auto parts = Split(flags.quota_config_map, '/');
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return Error(Code::kInvalidArgument,
                 "--quota-configmap: invalid value \"{}\": want NAMESPACE/NAME",
                 flags.quota_config_map);
  }
  const auto others = console::OtherTenantsDetailOf(flags.other_tenants_view);
  if (!others) {
    return Error(Code::kInvalidArgument,
                 "--other-tenants: invalid value \"{}\": want namespaces, shares or sums",
                 flags.other_tenants_view);
  }
  options.model.other_tenants = *others;
  const console::PrometheusOptions& access = flags.prometheus_access;
  if (!flags.prometheus_url.empty() || !flags.prometheus_ca_file.empty() ||
      !access.token_file.empty() || !access.basic_auth_dir.empty()) {
    ASSIGN_OR_RETURN(options.prometheus, PrometheusOf(flags));
  }
  const console::OidcOptions& oidc = flags.oidc;
  if (!oidc.issuer.empty() || !oidc.client_id.empty() || !oidc.redirect_url.empty() ||
      !oidc.client_secret_file.empty() || !flags.oidc_ca_file.empty()) {
    ASSIGN_OR_RETURN(options.oidc, OidcOf(flags));
  }
  options.model.feed.quota_ns = parts[0];
  options.model.feed.quota_name = parts[1];
  options.usage_label = flags.usage_label;
  options.model.feed.keeps_pod_labels = !flags.usage_label.empty();
  return options;
}

// With --dashboard, ignores the environment variables of flags, because they may have another
// meaning in the shell of a user who runs "tessera dashboard".
void IgnoreVariablesForDashboard(int argc, char** argv, CLI::App* app) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--dashboard") continue;
    for (CLI::Option* option : app->get_options()) option->envname("");
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  CLI::App app{"Shows the GPUs of a cluster in a browser.", "tessera-console"};
  app.set_version_flag("--version", std::string(tessera::kTesseraVersion));
  tessera::ConsoleFlags flags;
  tessera::AddConsoleFlags(&app, &flags);
  tessera::IgnoreVariablesForDashboard(argc, argv, &app);
  if (const auto done = tessera::ParseFlags(&app, argc, argv)) return *done;
  const auto options = tessera::ToOptions(flags);
  if (!options.ok()) return tessera::LogFailure(options.status());
  return tessera::console::RunConsole(*options);
}
