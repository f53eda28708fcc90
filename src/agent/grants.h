// SPDX-License-Identifier: Apache-2.0
// The grant service with all that belongs to it, on a thread of its own: journal, ledger, socket,
// connection to the kubelet. Threads: made and destroyed on one, Post from any.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "src/agent/device_set.h"
#include "src/agent/grant_service.h"
#include "src/agent/metrics.h"
#include "src/base/task_runner.h"
#include "src/grant/token.h"

namespace tessera::agent {

struct GrantsOptions {
  GrantOptions service;
  std::string state_dir;
  std::string socket;
  std::string pod_resources_socket;
  uid_t uid = 0;  // who may ask
};

class Grants {
 public:
  static constexpr std::string_view kJournalName = "grants.journal";
  static constexpr std::string_view kKeyName = "token.key";

  // All outlive it.
  Grants(GrantsOptions options, const DeviceSetHolder* devices, const grant::TokenSealer* sealer,
         AgentMetrics* metrics);
  ~Grants();
  Grants(const Grants&) = delete;
  Grants& operator=(const Grants&) = delete;

  // Serves when it returns OK. Errors: state folder, socket.
  Status Start();
  // Runs on the grants' thread.
  void Post(TaskRunner::Task task) { runner_.Post(std::move(task)); }

 private:
  struct State;
  Status MakeState();

  const GrantsOptions options_;
  const DeviceSetHolder* const devices_;
  const grant::TokenSealer* const sealer_;
  AgentMetrics* const metrics_;
  EpollTaskRunner runner_;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tessera::agent
