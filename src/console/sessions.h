// SPDX-License-Identifier: Apache-2.0
// Who uses the console, and what each person may see. A session begins with a token that the API
// server accepts, and holds a client that sends this token. So the API server decides about every
// write, and the console itself needs no right to impersonate or to review tokens of others.
//
// What a person may see is asked of the API server with the person's own credentials
// (SelfSubjectReview, SelfSubjectAccessReview): at login, every kRenew while the session is used,
// and before it is used again. A token that the API server rejects ends its session.
//
// Threads: the runner's. Callbacks run later, and not after this object is destroyed. Bounds:
// kMostSessions; a new one then ends the one that was unused for longest.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/weak_ptr.h"
#include "src/kube/client.h"

namespace tessera::console {

struct Rights {
  bool nodes = false;     // list nodes
  bool all_pods = false;  // list pods of all namespaces
  // Without all_pods: namespaces whose pods the person may list, of those that were asked about.
  std::set<std::string> namespaces;

  bool SeesPodsOf(const std::string& ns) const { return all_pods || namespaces.contains(ns); }
  // Equal for equal rights; names what the viewers of one buffer share.
  std::string Key() const;
  bool operator==(const Rights&) const = default;
};

struct WebSession {
  std::string id;    // value of the cookie
  std::string csrf;  // required for writes
  std::string user;  // name at the API server
  Rights rights;
  std::unique_ptr<kube::Client> client;  // sends the person's credentials
  MonotonicTime began{}, used{};
  MonotonicTime asked{};  // when the API server was last asked about its rights
  bool lasting = false;   // does not end by itself
  bool ended = false;
};

// 64 hexadecimal digits from the kernel.
std::string RandomHex();

class WebSessions {
 public:
  static constexpr size_t kMostSessions = 500;
  static constexpr Duration kIdle = std::chrono::minutes(30);
  static constexpr Duration kLongest = std::chrono::hours(12);
  static constexpr Duration kRenew = std::chrono::seconds(30);

  using OnSession = std::function<void(Result<std::shared_ptr<WebSession>>)>;
  // `namespaces`: those that the console knows, to ask about.
  using KnownNamespaces = std::function<std::set<std::string>()>;

  // `anonymous`: the API server without credentials.
  WebSessions(net::IoThread& io, TaskRunner& runner, kube::Config anonymous,
              KnownNamespaces namespaces);

  // UNAUTHENTICATED if the API server rejects the token.
  void LogIn(const std::string& token, OnSession on_done);
  // Begins a session with the credentials of a kubeconfig.
  void LogInWith(kube::Config config, OnSession on_done);
  // Null if there is none, or it has ended. Counts as use.
  std::shared_ptr<WebSession> Find(std::string_view id);
  // Calls `on_done` with the session, at once if its rights are recent. UNAUTHENTICATED: it has
  // ended.
  void WithRights(const std::shared_ptr<WebSession>& session, OnSession on_done);
  void End(const std::shared_ptr<WebSession>& session);
  // Ends unused sessions, and asks for the rights of the others again; `on_changed` is called for each session whose rights
  // have changed or that has ended.
  void Renew(const std::function<void(const std::shared_ptr<WebSession>&)>& on_changed);
  size_t size() const { return sessions_.size(); }

 private:
  class Review;

  void Begin(const std::shared_ptr<WebSession>& session, OnSession on_done);
  void Ask(const std::shared_ptr<WebSession>& session, std::function<void(Status)> on_done);
  void MakeRoom();
  bool HasEnded(const WebSession& session) const;

  net::IoThread& io_;
  TaskRunner& runner_;
  const kube::Config anonymous_;
  const KnownNamespaces namespaces_;
  std::map<std::string, std::shared_ptr<WebSession>, std::less<>> sessions_;
  std::set<std::shared_ptr<Review>> reviews_;  // not answered yet
  WeakPtrFactory<WebSessions> weak_{this};
};

}  // namespace tessera::console
