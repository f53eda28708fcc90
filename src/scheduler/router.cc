// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/router.h"

#include <utility>

namespace tessera::scheduler {

void Router::Add(std::string method, std::string path, Handler handler) {
  routes_[std::move(path)] = {std::move(method), std::move(handler)};
}

const Router::Entry* Router::Find(std::string_view path) const {
  if (const auto exact = routes_.find(path); exact != routes_.end()) return &exact->second;
  const Entry* best = nullptr;
  for (const auto& [prefix, entry] : routes_) {
    // Longer prefixes come later in the map's order.
    if (prefix.ends_with('/') && path.starts_with(prefix)) best = &entry;
  }
  return best;
}

void Router::Route(const net::Request& request, net::HttpServer::Reply reply) const {
  const Entry* entry = Find(request.path());
  if (entry == nullptr) {
    std::string text = "unknown page; known pages:\n";
    for (const auto& [path, route] : routes_) text += route.method + " " + path + "\n";
    return reply(net::TextResponse(404, std::move(text)));
  }
  const bool is_allowed =
      request.method == entry->method || (request.method == "HEAD" && entry->method == "GET");
  if (!is_allowed) {
    net::Response response = net::TextResponse(405, "this page requires " + entry->method + "\n");
    response.headers.Set("Allow", entry->method);
    return reply(std::move(response));
  }
  entry->handler(request, std::move(reply));
}

Router::Handler Router::AsHandler() const {
  return [this](const net::Request& request, net::HttpServer::Reply reply) {
    Route(request, std::move(reply));
  };
}

}  // namespace tessera::scheduler
