// SPDX-License-Identifier: Apache-2.0
// Assembles the operator: leader election, the controller of each term, and the status pages.
//
// A standby keeps no state of the cluster and sends a request for the Lease every two seconds.
// Threads: the runner's. The runner and the I/O thread must outlive the operator.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/kube/leader_election.h"
#include "src/net/address.h"
#include "src/net/io_thread.h"
#include "src/operator/controller.h"

namespace tessera::operators {

struct OperatorOptions {
  std::string kubeconfig;       // "": the pod's service account
  std::string metrics_address;  // serves /metrics, /healthz, /readyz over HTTP; "": off
  std::string ns;               // of the agents; "": the program's own namespace
  bool leader_elect = true;
  std::string lease_ns;              // "": the program's own namespace
  kube::ElectionOptions election{};  // if the identity is empty, one is generated
  ControllerOptions controller;      // without ns
};

class OperatorProgram {
 public:
  OperatorProgram(TaskRunner* runner, net::IoThread* io, Rendering rendering,
                  OperatorOptions options);
  ~OperatorProgram();
  OperatorProgram(const OperatorProgram&) = delete;
  OperatorProgram& operator=(const OperatorProgram&) = delete;

  // Fails only if a retry does not help: invalid options, a port in use, no configuration of the
  // API server. While the API server is unreachable, the operator retries.
  Status Start();
  // Stops writing and releases the Lease. Calls `on_done` within seconds.
  void Stop(std::function<void()> on_done);

  bool leading() const;
  const OperatorMetrics& metrics() const;
  // The address of the status pages. REQUIRES: Start, and a metrics_address.
  const net::Address& address() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::operators
