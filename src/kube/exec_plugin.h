// SPDX-License-Identifier: Apache-2.0
// Runs a credential plugin of a kubeconfig (client.authentication.k8s.io), such as the login
// program of a cloud. The plugin gets the cluster in KUBERNETES_EXEC_INFO and prints an
// ExecCredential.
//
// credentials.h decides when to run it. Plugins that require a terminal are rejected. Threads:
// RunExecPlugin blocks, up to its timeout: call it on a Worker. The other functions are pure.
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
  std::string api_version;        // client.authentication.k8s.io/v1 or /v1beta1
  std::vector<std::string> argv;  // a program without a slash is looked up in PATH
  std::vector<std::string> env;   // "NAME=value"
  std::string install_hint;       // shown if the program is missing
  bool provide_cluster_info = false;
  Json cluster_config;  // the kubeconfig's extension of the cluster; null: none
};

// A plugin's output: a token, a client certificate with its key, or both.
struct ExecCredential {
  std::string token;
  std::string certificate;  // PEM
  std::string key;          // PEM
  std::optional<WallTime> expires;
};

// Runs the plugin. UNAUTHENTICATED: the plugin failed (the message contains its standard error), or
// its output is invalid. NOT_FOUND: no such program; the message contains the install hint.
// DEADLINE_EXCEEDED: the plugin ran too long and was killed. No message contains the plugin's
// standard output, which may have a token.
Result<ExecCredential> RunExecPlugin(const ExecPlugin& plugin, const net::Url& server,
                                     const net::TlsOptions& tls, Duration timeout);

// The value of KUBERNETES_EXEC_INFO.
Result<std::string> ExecInfo(const ExecPlugin& plugin, const net::Url& server,
                             const net::TlsOptions& tls);

// Parses a plugin's output. INVALID_ARGUMENT states the reason without secrets.
Result<ExecCredential> ParseExecCredential(std::string_view text, std::string_view api_version);

}  // namespace tessera::kube
