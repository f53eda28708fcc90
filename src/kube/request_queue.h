// SPDX-License-Identifier: Apache-2.0
// Inside the room: sends requests with the token of the moment, a bounded number at once, and holds
// everything back while the server asks for patience or cannot be reached. Threads: the runner's.
#pragma once

#include <functional>
#include <memory>

#include "src/kube/client.h"
#include "src/kube/config.h"
#include "src/net/http_client.h"

namespace tessera::kube {

class RequestQueue {
 public:
  using OnAnswer = std::function<void(const Result<net::Response>& answer)>;

  RequestQueue(net::IoThread& io, TaskRunner& runner, const Config& config,
               const ClientOptions& options);
  ~RequestQueue();

  // `repeatable`: sending it twice does no harm. `before_send` as in client.h.
  Operation Submit(net::Request request, bool repeatable, OnAnswer on_answer,
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
