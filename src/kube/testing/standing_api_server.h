// SPDX-License-Identifier: Apache-2.0
// For tests and benches: an API server without faults, that holds collections of objects which
// never change, in protobuf. It gives them in one stream or in pages, as it is asked; watches then
// see nothing more. For trouble there is faulty_api_server.h, for everything else the real one.
//
// Threads: made, used and destroyed on `runner`'s thread, where it also answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/net/http_server.h"

namespace tessera::kube::testing {

class StandingApiServer {
 public:
  StandingApiServer(net::IoThread& io, TaskRunner& runner);

  net::Url url() const;
  // `plural` as in paths ("nodes"), `kind` ("Node"); messages as MessageOf (samples.h) makes them.
  // Collections that were not set are empty.
  void Set(const std::string& plural, std::string kind, std::vector<std::string> messages);
  // From now on this collection is answered with that HTTP status.
  void Refuse(const std::string& plural, int status) { refused_[plural] = status; }
  void Allow(const std::string& plural) { refused_.erase(plural); }
  // Answers the requests for which it has an answer, such as those that write.
  using Other = std::function<std::optional<net::Response>(const net::Request&)>;
  void SetOther(Other other) { other_ = std::move(other); }
  // From now on requests come here first; one for which it returns true gets no other answer.
  using Hang = std::function<bool(const net::HttpServer::Reply&)>;
  void SetHang(Hang hang) { hang_ = std::move(hang); }
  // Rejects every request without this token from now on (401).
  void RequireToken(std::string token) { token_ = std::move(token); }
  // Of all requests so far.
  const std::vector<std::string>& paths() const { return paths_; }
  // Ends all watches, as a server does when their time is over.
  void EndWatches();
  // A kubeconfig that leads here, with `ns` as the namespace of its context.
  std::string Kubeconfig(const std::string& ns = "default") const;

 private:
  struct Collection {
    std::string kind;
    std::vector<std::string> messages;
  };

  void Answer(const net::Request& request, const net::HttpServer::Reply& reply);
  // Those of the namespace that the path names; nothing where it names none.
  static std::optional<Collection> In(const Collection& all, std::string_view path);
  static std::string PageOf(const Collection& collection, const net::Request& request);
  static std::string StreamOf(const Collection& collection);

  std::map<std::string, Collection> collections_;
  std::map<std::string, int> refused_;
  Other other_;
  Hang hang_;
  std::string token_;
  std::vector<std::string> paths_;
  std::vector<net::HttpServer::Reply> watches_;  // that see nothing more
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace tessera::kube::testing
