// SPDX-License-Identifier: Apache-2.0
// Which handler answers which path of an HTTP server. The extender, the admission webhook and the
// status pages each add their own; one server, or several, serve what was added.
//
// Threads, ownership: those of net::HttpServer::Handler. A router outlives the servers that have
// its Handler(), and takes no routes once one has.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/net/http_server.h"

namespace tessera::scheduler {

class Router {
 public:
  using Handler = net::HttpServer::Handler;

  // GET also answers HEAD. A path that ends with "/" stands for all that begin with it, where no
  // other fits better.
  void Get(std::string path, Handler handler) { Add("GET", std::move(path), std::move(handler)); }
  void Post(std::string path, Handler handler) { Add("POST", std::move(path), std::move(handler)); }

  // 404 says which paths there are, 405 which method the path wants.
  void Route(const net::Request& request, net::HttpServer::Reply reply) const;
  Handler AsHandler() const;

 private:
  struct Entry {
    std::string method;
    Handler handler;
  };
  void Add(std::string method, std::string path, Handler handler);
  const Entry* Find(std::string_view path) const;

  std::map<std::string, Entry, std::less<>> routes_;
};

net::Response JsonResponse(int status, std::string body);

}  // namespace tessera::scheduler
