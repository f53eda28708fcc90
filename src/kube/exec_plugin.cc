// SPDX-License-Identifier: Apache-2.0
#include "src/kube/exec_plugin.h"

#include <chrono>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/base/subprocess.h"
#include "src/formats/base64.h"
#include "src/kube/times.h"

namespace tessera::kube {
namespace {

constexpr size_t kMaxQuotedOutput = 500;  // bytes of a failed plugin's output that an error quotes

Result<Json> ClusterInfo(const ExecPlugin& plugin, const net::Url& server,
                         const net::TlsOptions& tls) {
  Json cluster = Json::MakeObject({{"server", Json::String(server.ToString())}});
  if (!tls.server_name.empty()) cluster.Set("tls-server-name", Json::String(tls.server_name));
  if (tls.skip_verify) cluster.Set("insecure-skip-tls-verify", Json::Bool(true));
  std::string ca = tls.ca.text;
  if (!tls.ca.file.empty()) {
    ASSIGN_OR_RETURN(ca, ReadFile(tls.ca.file));
  }
  if (!ca.empty()) cluster.Set("certificate-authority-data", Json::String(Base64Encode(ca)));
  if (!plugin.cluster_config.is_null()) cluster.Set("config", plugin.cluster_config);
  return cluster;
}

}  // namespace

Result<std::string> ExecInfo(const ExecPlugin& plugin, const net::Url& server,
                             const net::TlsOptions& tls) {
  Json spec = Json::MakeObject({{"interactive", Json::Bool(false)}});
  if (plugin.provide_cluster_info) {
    ASSIGN_OR_RETURN(Json cluster, ClusterInfo(plugin, server, tls));
    spec.Set("cluster", std::move(cluster));
  }
  return Json::MakeObject({{"kind", Json::String("ExecCredential")},
                           {"apiVersion", Json::String(plugin.api_version)},
                           {"spec", std::move(spec)}})
      .Serialize();
}

Result<ExecCredential> ParseExecCredential(std::string_view text, std::string_view api_version) {
  const auto root = ParseJson(text);
  // The parser's message may quote a token.
  if (!root.ok() || !root->is_object()) {
    return Error(Code::kInvalidArgument, "its output is not a JSON object");
  }
  const std::string version = root->StringAt("apiVersion").value_or("");
  if (root->StringAt("kind").value_or("") != "ExecCredential" || version != api_version) {
    return Error(Code::kInvalidArgument, "its output is not an ExecCredential of {}", api_version);
  }
  const Json* status = root->Find("status");
  if (status == nullptr || !status->is_object()) {
    return Error(Code::kInvalidArgument, "its output has no status");
  }
  ExecCredential credential{.token = status->StringAt("token").value_or(""),
                            .certificate = status->StringAt("clientCertificateData").value_or(""),
                            .key = status->StringAt("clientKeyData").value_or("")};
  if (credential.certificate.empty() != credential.key.empty()) {
    return Error(Code::kInvalidArgument,
                 "clientCertificateData and clientKeyData require each other");
  }
  if (credential.token.empty() && credential.key.empty()) {
    return Error(Code::kInvalidArgument, "its status has neither a token nor a certificate");
  }
  if (const auto expires = status->StringAt("expirationTimestamp"); expires.ok()) {
    ASSIGN_OR_RETURN(credential.expires, ParseRfc3339(*expires));
  }
  return credential;
}

Result<ExecCredential> RunExecPlugin(const ExecPlugin& plugin, const net::Url& server,
                                     const net::TlsOptions& tls, Duration timeout) {
  const std::string plugin_name = fmt::format("exec plugin {}", plugin.argv[0]);
  auto info = ExecInfo(plugin, server, tls);
  if (!info.ok()) return info.status().Annotate(plugin_name);
  std::vector<std::string> env = plugin.env;
  env.push_back("KUBERNETES_EXEC_INFO=" + *info);
  const auto result = RunProgram(plugin.argv, timeout, env);
  if (result.status().code() == Code::kDeadlineExceeded) {
    // RunProgram's error contains the standard output, which may have a token.
    return Error(Code::kDeadlineExceeded, "{} did not end within {} s and was killed", plugin_name,
                 std::chrono::duration<double>(timeout).count());
  }
  if (!result.ok()) {
    if (result.status().code() != Code::kNotFound || plugin.install_hint.empty()) {
      return result.status().Annotate(plugin_name);
    }
    return Error(Code::kNotFound, "{}: {}", result.status().message(), plugin.install_hint)
        .Annotate(plugin_name);
  }
  if (result->exit_code != 0) {
    const std::string_view words = Trim(std::string_view(result->err).substr(0, kMaxQuotedOutput));
    return Error(Code::kUnauthenticated, "{} ended with exit code {}: {}", plugin_name,
                 result->exit_code, words);
  }
  auto credential = ParseExecCredential(result->out, plugin.api_version);
  if (credential.ok()) return credential;
  return Error(Code::kUnauthenticated, "{}: {}", plugin_name, credential.status().message());
}

}  // namespace tessera::kube
