// SPDX-License-Identifier: Apache-2.0
#include "src/components/console_check.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace tessera::components {
namespace {

struct ConsoleSetting {
  std::string_view setting;
  const std::string& value;
};

Status Missing(std::string_view setting, std::string_view missing) {
  return Error(Code::kInvalidArgument, "{}: it needs {}: set both, or neither", setting, missing);
}

Status CheckAllEmpty(std::span<const ConsoleSetting> settings, std::string_view missing) {
  for (const ConsoleSetting& given : settings) {
    if (!given.value.empty()) return Missing(given.setting, missing);
  }
  return Status::Ok();
}

bool HasFlag(const ConsoleSettings& console, std::string_view prefix) {
  return std::ranges::any_of(console.extra_args,
                             [&](const std::string& arg) { return arg.starts_with(prefix); });
}

Status CheckLogin(const ConsoleLoginSettings& login) {
  const ConsoleSetting issuer{"console.oidc.issuerUrl", login.issuer_url};
  const ConsoleSetting required[] = {{"console.oidc.clientId", login.client_id},
                                     {"console.oidc.redirectUrl", login.redirect_url}};
  const ConsoleSetting optional[] = {{"console.oidc.clientSecret", login.client_secret},
                                     {"console.oidc.caConfigMap", login.ca_config_map}};
  for (const ConsoleSetting& given : required) {
    if (!issuer.value.empty() && given.value.empty()) return Missing(issuer.setting, given.setting);
  }
  if (issuer.value.empty()) {
    RETURN_IF_ERROR(CheckAllEmpty(required, issuer.setting));
    RETURN_IF_ERROR(CheckAllEmpty(optional, issuer.setting));
  }
  return Status::Ok();
}

Status CheckPrometheus(const std::string& url, const PrometheusAccess& access) {
  const ConsoleSetting optional[] = {
      {"console.prometheus.caConfigMap", access.ca_config_map},
      {"console.prometheus.tokenSecret", access.token_secret},
      {"console.prometheus.basicAuthSecret", access.basic_auth_secret}};
  if (url.empty()) RETURN_IF_ERROR(CheckAllEmpty(optional, "console.prometheusUrl"));
  if (access.token_secret.empty() || access.basic_auth_secret.empty()) return Status::Ok();
  return Error(Code::kInvalidArgument,
               "console.prometheus.tokenSecret and console.prometheus.basicAuthSecret exclude each "
               "other: set one of them");
}

}  // namespace

Status CheckConsole(const ConsoleSettings& console) {
  if (!console.enabled) return Status::Ok();
  if (!HasFlag(console, "--oidc-")) RETURN_IF_ERROR(CheckLogin(console.oidc));
  if (HasFlag(console, "--prometheus-")) return Status::Ok();
  return CheckPrometheus(console.prometheus_url, console.prometheus);
}

}  // namespace tessera::components
