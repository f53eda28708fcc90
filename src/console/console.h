// SPDX-License-Identifier: Apache-2.0
// The web console: one ledger of the cluster, shown to many users, each with their own rights.
//
// It runs in two ways. In the cluster, users log in with a token. On a user's machine (`tessera
// dashboard`) it listens on loopback, uses the user's kubeconfig, and accepts only the browser that
// has opened its secret address.
//
// Threads: RunConsole runs everything on the thread that calls it, except the sockets.
#pragma once

#include <optional>
#include <string>

#include "src/console/cluster_model.h"
#include "src/console/metric_history.h"
#include "src/console/oidc.h"
#include "src/net/http_server.h"

namespace tessera::console {

struct ConsoleOptions {
  std::string kubeconfig;  // "": found by kube::FindConfig
  std::string context;
  net::Address listen;
  // Serves /metrics and /healthz over HTTP to everyone who reaches it; nullopt: off.
  std::optional<net::Address> metrics_listen;
  std::optional<net::TlsOptions> tls;
  // Whether users reach this HTTP server through a proxy that serves HTTPS. Browsers then send the
  // session cookie over HTTPS only.
  bool behind_https_proxy = false;
  bool dashboard = false;  // whether it runs as `tessera dashboard`, see above
  ModelOptions model;
  // The source of the metrics' history; nullopt: the console shows no history.
  std::optional<PrometheusOptions> prometheus;
  // nullopt: users log in with tokens only.
  std::optional<OidcOptions> oidc;
  // Label of pods by which usage is added up (usage_meter.h); "": usage is not metered.
  std::string usage_label;
};

// Runs until SIGTERM or SIGINT. Returns the exit code.
int RunConsole(ConsoleOptions options);

}  // namespace tessera::console
