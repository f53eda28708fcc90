// SPDX-License-Identifier: Apache-2.0
// For tests: an API server that holds objects of any kind, with versions and conflicts, and nothing
// else of what the real one does. It is a fake because tests say here what happens between two
// requests of a client, which nobody can say to the real one.
// Threads: the runner's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "src/formats/json.h"
#include "src/kube/config.h"
#include "src/net/http_server.h"

namespace tessera::kube::testing {

class ObjectStore {
 public:
  ObjectStore(net::IoThread& io, TaskRunner& runner);

  Config config() const;
  // By path; each has a metadata.resourceVersion.
  const Json* Find(const std::string& path) const;
  void Put(const std::string& path, Json object);
  void Remove(const std::string& path) { objects_.erase(path); }
  // Called before each request is looked at.
  void OnRequest(std::function<void(const net::Request&)> hook) { hook_ = std::move(hook); }
  int writes() const { return writes_; }
  // For tests whose own server passes some of its requests on.
  net::Response Answer(const net::Request& request);

 private:
  net::Response Create(const net::Request& request);
  net::Response Patch(const net::Request& request, Json object);

  std::map<std::string, Json> objects_;
  std::function<void(const net::Request&)> hook_;
  int64_t version_ = 1;
  int writes_ = 0;
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace tessera::kube::testing
