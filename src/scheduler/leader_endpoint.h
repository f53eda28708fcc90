// SPDX-License-Identifier: Apache-2.0
// Points the extender's Service to the leader, by an EndpointSlice that the leader writes. The
// Service has no selector, so every replica can be ready and rolling updates proceed, although only
// the leader answers.
//
// The EndpointSlice is written at once, again after a failure, and periodically, in case another
// client edits it.
//
// A former leader never overwrites its successor's EndpointSlice, however long the process was
// suspended or the request was delayed. Each write first reads the EndpointSlice, then the Lease,
// and is conditional on that version of the EndpointSlice. If the Lease has another holder, nothing
// is written. If another replica acquires the Lease later, it also writes the EndpointSlice later.
// So a stale write either precedes that write and is overwritten, or follows it and conflicts.
//
// Threads: the client's runner. Ownership: the client outlives the endpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/kube/client.h"

namespace tessera::scheduler {

struct LeaderEndpointOptions {
  std::string ns;
  std::string service;  // also the name of the EndpointSlice
  std::string ip;       // address of this replica
  uint16_t port = 0;
  Duration period = std::chrono::minutes(1);
  // The Lease of the election and this replica's identity; "" without election.
  std::string lease_ns, lease, identity;
  kube::BeforeSend before_send;  // checked before each write
};

// INVALID_ARGUMENT: not an IP address.
Status CheckIp(const std::string& ip);

class LeaderEndpoint {
 public:
  using OnError = std::function<void(const Status&)>;
  // Starts to write. Reports FAILED_PRECONDITION if another replica holds the Lease. REQUIRES:
  // CheckIp(options.ip).
  LeaderEndpoint(kube::Client& client, LeaderEndpointOptions options, OnError on_error);
  // Keeps the EndpointSlice: the next leader overwrites it.
  ~LeaderEndpoint();
  LeaderEndpoint(const LeaderEndpoint&) = delete;
  LeaderEndpoint& operator=(const LeaderEndpoint&) = delete;

  // Writes an EndpointSlice without endpoints, which the next leader overwrites. Calls `on_done`
  // once, whether the write succeeds or not.
  void Withdraw(std::function<void()> on_done);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tessera::scheduler
