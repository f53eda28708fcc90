// SPDX-License-Identifier: Apache-2.0
// Leads the extender's Service to the replica that decides, by an EndpointSlice that this replica
// writes while it does. The Service has no selector: so every replica can be ready, and updates of
// the Deployment go on, though only one of them answers.
//
// It is written at once, again after a failure, and periodically, in case another client edits it.
//
// A former leader never overwrites what its successor wrote, however long it stood still and
// however late its request arrives. Each write first reads the EndpointSlice, then the Lease, and
// holds for that version of the EndpointSlice alone. If the Lease has another holder, nothing is
// written. If another replica acquires the Lease later, it writes the EndpointSlice later, too: a
// stale write comes before that and is overwritten, or after it and conflicts.
// Threads: the client's runner. Ownership: the client outlives it.
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
  std::string service;  // and the name of the EndpointSlice
  std::string ip;       // address of this replica
  uint16_t port = 0;
  Duration period = std::chrono::minutes(1);
  // The Lease by which this replica leads, and its identity there; without election "".
  std::string lease_ns, lease, identity;
  kube::BeforeSend before_send;  // of what is written
};

// INVALID_ARGUMENT: no IP address.
Status CheckIp(const std::string& ip);

class LeaderEndpoint {
 public:
  using OnTrouble = std::function<void(const Status&)>;
  // Begins to write. FAILED_PRECONDITION is reported if another replica holds the Lease.
  // REQUIRES: CheckIp(options.ip).
  LeaderEndpoint(kube::Client& client, LeaderEndpointOptions options, OnTrouble on_trouble);
  // Leaves the EndpointSlice as it is: the next leader overwrites it.
  ~LeaderEndpoint();
  LeaderEndpoint(const LeaderEndpoint&) = delete;
  LeaderEndpoint& operator=(const LeaderEndpoint&) = delete;

  // Writes that no replica serves, until the next leader overwrites it. `on_done` is called once,
  // whether the write succeeds or not.
  void Withdraw(std::function<void()> on_done);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::scheduler
