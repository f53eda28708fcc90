// SPDX-License-Identifier: Apache-2.0
// Inside the room: sends requests with the token of the moment, a bounded number at once, and holds
// them back after trouble: all of them while the server cannot be reached (then one goes ahead),
// those of one priority level while the server rejects that level, one that the server asked to
// come back later. Each request ends at its deadline by a timer of its own, sent or not. Threads:
// the runner's.
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

  // `repeatable`: sending it twice does no harm. `flow`: verb and resource, such as "POST
  // pods/eviction": the server puts all requests of a flow on one priority level. `before_send` as
  // in client.h.
  Operation Submit(net::Request request, std::string flow, bool repeatable, OnAnswer on_answer,
                   BeforeSend before_send = nullptr);
  // Once, and at once where the credential is known.
  Operation Stream(net::Request request, const net::Deadlines& deadlines,
                   net::StreamHandler handler);
  TaskRunner& runner();

 private:
  struct Item;
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
