// SPDX-License-Identifier: Apache-2.0
#include "src/kube/pod_page.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "src/kube/api_error.h"

namespace tessera::kube {

std::string PodPagePath(const ObjectRef& pod, std::string_view port, std::string_view path) {
  return fmt::format("{}:{}/proxy{}", PathOf(pod), port, path);
}

Operation ReadPodPage(Client& client, const ObjectRef& pod, std::string_view port,
                      std::string_view path, Duration timeout,
                      std::function<void(Result<std::string>)> on_done) {
  return ReadText(client, PodPagePath(pod, port, path), kMaxPodPage, timeout, std::move(on_done));
}

Operation ReadText(Client& client, const std::string& target, size_t max_bytes, Duration timeout,
                   std::function<void(Result<std::string>)> on_done) {
  const auto response = std::make_shared<net::Response>();
  net::StreamHandler handler;
  handler.on_head = [response](const net::Response& head) { response->status = head.status; };
  handler.on_data = [response, max_bytes](std::string_view piece) {
    response->body += piece.substr(0, max_bytes - std::min(max_bytes, response->body.size()));
  };
  handler.on_end = [response, on_done = std::move(on_done)](const Status& status) {
    if (!status.ok()) return on_done(status);
    if (response->status != 200) return on_done(ErrorOf(*response));
    on_done(std::move(response->body));
  };
  return client.Stream(target, ListQuery{},
                       {.connect = timeout, .header = timeout, .body = timeout},
                       std::move(handler));
}

}  // namespace tessera::kube
