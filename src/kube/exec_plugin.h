// SPDX-License-Identifier: Apache-2.0
// A program that a kubeconfig names to get credentials from (client.authentication.k8s.io): clouds'
// logins. It is told about the cluster in KUBERNETES_EXEC_INFO and prints an ExecCredential.
//
// Not for: when to ask again (credentials.h). Plugins that need a terminal are refused.
// Threads: RunExecPlugin blocks, up to its deadline: call it on a Worker. The rest is pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/net/address.h"
#include "src/net/tls.h"

namespace tessera::kube {

struct ExecPlugin {
  std::string api_version;        // of the protocol: client.authentication.k8s.io/v1 or /v1beta1
  std::vector<std::string> argv;  // the program is looked up in PATH unless it has a slash
  std::vector<std::string> env;   // "NAME=value"
  std::string install_hint;       // for people who do not have the program
  bool provide_cluster_info = false;
  Json cluster_config;  // of the cluster's extension; null: none
};

// What a plugin answers: a token, a client's certificate with its key, or both.
struct ExecCredential {
  std::string token;
  std::string certificate;  // PEM
  std::string key;          // PEM
  std::optional<WallTime> expires;
};

// Runs it. UNAUTHENTICATED: it failed, or answered nonsense; its words are in the message.
// NOT_FOUND: no such program; the message has the hint. DEADLINE_EXCEEDED: it was killed.
Result<ExecCredential> RunExecPlugin(const ExecPlugin& plugin, const net::Url& server,
                                     const net::TlsOptions& tls, Duration deadline);

// The value of KUBERNETES_EXEC_INFO.
Result<std::string> ExecInfo(const ExecPlugin& plugin, const net::Url& server,
                             const net::TlsOptions& tls);

// What the plugin printed. INVALID_ARGUMENT says what is wrong, without the secrets in it.
Result<ExecCredential> ParseExecCredential(std::string_view text, std::string_view api_version);

}  // namespace tessera::kube
