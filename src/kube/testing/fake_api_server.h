// SPDX-License-Identifier: Apache-2.0
// For tests and benchmarks: an HTTP API server with collections, objects and injected faults.
//
// A collection is either a fixed list or consists of objects. A test sets a fixed list as a whole:
// clients can list it in pages, and watches stream the list and then stay silent. Objects are
// written by tests and clients, with versions and conflicts; watches stream their changes as JSON.
// Tests use this server to control what happens between two requests, and which request fails.
// faulty_api_server.h corrupts the byte stream. Tests of the API itself use a real API server.
//
// Threads: created, used and destroyed on `runner`'s thread, where it also answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/formats/json.h"
#include "src/kube/config.h"
#include "src/net/address.h"
#include "src/net/http.h"
#include "src/net/http_server.h"

namespace tessera::kube::testing {

class FakeApiServer {
 public:
  FakeApiServer(net::IoThread& io, TaskRunner& runner,
                const net::Address& address = {.host = "127.0.0.1"});

  net::Url url() const;
  Config config() const { return {.server = url()}; }
  // A kubeconfig for this server; the namespace of its context is `ns`.
  std::string Kubeconfig(const std::string& ns = "default") const;

  // --- Collections. `plural` is a name in paths ("nodes"), `kind` its kind ("Node"); `messages`
  // are results of MessageOf (samples.h).
  void SetCollection(const std::string& plural, std::string kind,
                     std::vector<std::string> messages);
  // Ends all watches, like a server when they time out.
  void EndWatches();

  // --- Objects, by path; each has a metadata.resourceVersion. Null if no object has this path.
  const Json* Find(const std::string& path) const;
  void Put(const std::string& path, Json object);
  // The pod of tessera-agent on a node.
  void PutAgent(const std::string& pod, const std::string& node);
  void Remove(const std::string& path);
  // Number of writes by clients.
  int writes() const { return writes_; }

  // --- Requests and faults.
  // Called before a request is answered.
  void OnRequest(std::function<void(const net::Request&)> hook) { hook_ = std::move(hook); }
  // Paths of all requests so far.
  const std::vector<std::string>& paths() const { return paths_; }
  // Returns true if it handles the request in place of the server. It may reply later, or never.
  using Fault = std::function<bool(const net::Request&, const net::HttpServer::Reply&)>;
  void SetFault(Fault fault) { fault_ = std::move(fault); }
  // Answers requests for this resource with this HTTP status, until Allow.
  void Refuse(const std::string& plural, int status) { refused_[plural] = status; }
  void Allow(const std::string& plural) { refused_.erase(plural); }
  // Answers 401 to every request without this token.
  void RequireToken(std::string token) { token_ = std::move(token); }

 private:
  struct Collection {
    std::string kind;
    std::vector<std::string> messages;
  };
  struct Target;  // parsed path
  struct Change {
    int64_t version;
    std::string type;
    std::string path;
    Json object;
  };
  struct HeldWatch {
    net::Request request;
    net::HttpServer::Reply reply;
  };

  void Answer(const net::Request& request, const net::HttpServer::Reply& reply);
  void AnswerCollection(const net::Request& request, const Target& target,
                        const net::HttpServer::Reply& reply);
  void AnswerObjects(const net::Request& request, const net::HttpServer::Reply& reply);
  // Streams the changes since the request's version, and returns whether there were any.
  bool SendChanges(const net::Request& request, const net::HttpServer::Reply& reply) const;
  void RecordChange(std::string type, const std::string& path, Json object);
  net::Response Delete(const std::string& path);
  net::Response AnswerObject(const net::Request& request);
  net::Response Create(const net::Request& request);
  net::Response Apply(const net::Request& request);
  net::Response Patch(const net::Request& request, Json object);
  net::Response Write(const std::string& path, Json object);

  std::map<std::string, Collection> collections_;
  std::vector<HeldWatch> watches_;  // wait for a change
  std::map<std::string, Json> objects_;
  std::vector<Change> changes_;
  int64_t version_ = 1;
  int writes_ = 0;
  std::function<void(const net::Request&)> hook_;
  std::vector<std::string> paths_;
  Fault fault_;
  std::map<std::string, int> refused_;
  std::string token_;
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace tessera::kube::testing
