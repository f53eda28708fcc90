// SPDX-License-Identifier: Apache-2.0
// Sends requests with the current credentials and bounded concurrency, and delays them after
// errors. While the server is unreachable, one request probes it and all others wait. While the
// server rejects a priority level, the requests of that level wait. A response with Retry-After
// delays only its own request. A timer ends each request at its deadline, whether it was sent or
// not: with RESOURCE_EXHAUSTED if it waits for a rejected priority level, else with
// DEADLINE_EXCEEDED. Included only in src/kube. Threads: the runner's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/kube/api_transport.h"
#include "src/kube/client.h"
#include "src/kube/config.h"

namespace tessera::kube {

class RequestQueue {
 public:
  using OnAnswer = std::function<void(const Result<net::Response>& answer)>;

  RequestQueue(TaskRunner& runner, std::unique_ptr<ApiTransport> transport, const Config& config,
               const ClientOptions& options);
  ~RequestQueue();

  // `repeatable`: the request may be sent twice. `flow`: verb and resource, such as "POST
  // pods/eviction"; the server assigns one priority level to all requests of a flow. `before_send`:
  // see client.h.
  Operation Submit(net::Request request, std::string flow, bool repeatable, OnAnswer on_answer,
                   BeforeSend before_send = nullptr);
  // Sends a streamed request without retries, immediately if the credential is known.
  Operation Stream(net::Request request, const net::Deadlines& deadlines,
                   net::StreamHandler handler);
  // Requests that are sent from now on have this token. See TokenSource::Set.
  void SetToken(std::string token);
  TaskRunner& runner();

 private:
  struct Item;
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
