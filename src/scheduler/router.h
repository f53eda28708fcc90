// SPDX-License-Identifier: Apache-2.0
// Routes HTTP requests to handlers by path. The extender and the status pages add their routes; one
// or more servers use the router.
//
// Threads, ownership: as net::HttpServer::Handler. A router outlives the servers that use
// AsHandler(). Add all routes before the first server starts.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/net/http_server.h"

namespace tessera::scheduler {

class Router {
 public:
  using Handler = net::HttpServer::Handler;

  // GET also answers HEAD. A path that ends with "/" matches all paths below it, unless a longer
  // registered path matches.
  void Get(std::string path, Handler handler) { Add("GET", std::move(path), std::move(handler)); }
  void Post(std::string path, Handler handler) { Add("POST", std::move(path), std::move(handler)); }

  // A 404 lists the known paths, a 405 names the allowed method.
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

}  // namespace tessera::scheduler
