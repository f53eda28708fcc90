// SPDX-License-Identifier: Apache-2.0
// The web console: one ledger of the cluster, shown to many people, each with their own rights.
//
// Two ways to run it: in the cluster, where people log in with a token, and on a person's machine
// (`tessera dashboard`), where it listens on loopback, uses the person's kubeconfig, and lets in
// the browser that opens its secret address.
//
// Threads: the runner's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/console/cluster_model.h"
#include "src/net/http_server.h"

namespace tessera::console {

struct ConsoleOptions {
  std::string kubeconfig;  // "": the environment's, as for the other programs
  std::string context;
  net::Address listen;
  std::optional<net::TlsOptions> tls;
  // Whether people reach it over HTTPS although it serves HTTP, behind a proxy. The cookie of a
  // session is then sent over HTTPS only.
  bool https_proxy = false;
  bool dashboard = false;
  ModelOptions model;
};

class WebConsole {
 public:
  WebConsole(net::IoThread& io, TaskRunner& runner, kube::Config config, ConsoleOptions options);
  ~WebConsole();
  WebConsole(const WebConsole&) = delete;
  WebConsole& operator=(const WebConsole&) = delete;

  // Listens, and follows the cluster. In dashboard mode `on_url` gets the address to open once the
  // person's credentials are known to be valid, or why they are not.
  Status Start(std::function<void(Result<std::string>)> on_url);
  // REQUIRES: Start succeeded.
  const net::Address& address() const;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

// Runs until SIGTERM or SIGINT; an exit code.
int RunConsole(ConsoleOptions options);

}  // namespace tessera::console
