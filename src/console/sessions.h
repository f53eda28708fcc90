// SPDX-License-Identifier: Apache-2.0
// Sessions of the console, with the rights of each user. A session begins with a token that the API
// server accepts, and holds a client that sends this token. So the API server decides about every
// write, and the console itself needs no right to impersonate users or to review their tokens.
//
// The console gets the rights of a user from the API server, with the user's own credentials
// (SelfSubjectReview, SelfSubjectAccessReview): at login, every kRenewInterval while the session is
// used, and before an unused session is used again. A token that the API server rejects ends its
// session. Every end of a session, and every change of its rights, is reported to `set_on_changed`.
//
// Threads: the runner's. Callbacks run later, and not after this object is destroyed. Bounds: if
// there are kMaxSessions, a new session ends the session that was unused for longest; if the user
// has kMaxSessionsPerUser, the new session ends the user's oldest session.
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

// A request to check whether the user may do something (SelfSubjectAccessReview).
struct AccessRequest {
  std::string verb;
  std::string group;     // "": the core group
  std::string resource;  // may have a subresource: "pods/proxy"
  std::string ns;        // "": in all namespaces
  std::string name;      // "": all objects
};
kube::Operation CheckAccess(kube::Client& client, const AccessRequest& access,
                            kube::Client::OnObject on_answer);
bool IsAllowed(const Json& review);

struct Rights {
  bool nodes = false;     // list nodes
  bool all_pods = false;  // list pods of all namespaces
  bool agents = false;    // read the metrics of agents: get pods/proxy in their namespace
  // Without all_pods: the namespaces whose pods the user may list, among those that were checked.
  std::set<std::string> namespaces;

  bool SeesPodsOf(const std::string& ns) const { return all_pods || namespaces.contains(ns); }
  // Equal for users with equal rights to see nodes and pods. Viewers with the same key share a
  // buffer.
  std::string Key() const;
  bool operator==(const Rights&) const = default;
};
// For ViewerRights (json_of.h): empty if the user sees the pods of all namespaces. `rights` must
// outlive the result.
std::function<bool(const std::string& ns)> PodsSeenBy(const Rights& rights);

struct WebSession {
  std::string id;    // value of the cookie
  std::string csrf;  // required for writes
  std::string user;  // name at the API server
  Rights rights;
  std::unique_ptr<kube::Client> client;  // sends the user's credentials
  MonotonicTime began_at{}, last_used_at{};
  MonotonicTime rights_checked_at{};  // when the API server last sent the rights
  bool never_ends = false;            // for the dashboard
  bool ended = false;
};

// 64 hexadecimal digits from the kernel.
std::string RandomHex();

class WebSessions {
 public:
  static constexpr size_t kMaxSessions = 500;
  static constexpr size_t kMaxSessionsPerUser = 20;
  static constexpr Duration kMaxIdle = std::chrono::minutes(30);
  static constexpr Duration kMaxLifetime = std::chrono::hours(12);
  static constexpr Duration kRenewInterval = std::chrono::seconds(30);

  using OnSession = std::function<void(Result<std::shared_ptr<WebSession>>)>;
  // The namespaces in which a user's right to list pods is checked.
  using KnownNamespaces = std::function<std::set<std::string>()>;

  // `anonymous`: the API server, without credentials.
  WebSessions(net::IoThread& io, TaskRunner& runner, kube::Config anonymous,
              KnownNamespaces namespaces);

  // Called when the rights of a session have changed, or when it has ended (`ended`).
  void set_on_changed(std::function<void(const WebSession&)> on_changed) {
    on_changed_ = std::move(on_changed);
  }

  // UNAUTHENTICATED if the API server rejects the token.
  void LogIn(const std::string& token, OnSession on_done);
  // Begins a session with the credentials of a kubeconfig.
  void LogInWith(kube::Config config, OnSession on_done);
  // Null if no session has this id, or if the session has ended. The call counts as use of the
  // session.
  std::shared_ptr<WebSession> Find(std::string_view id);
  // Calls `on_done` with the session, at once if its rights were checked recently. Calls that wait
  // for the same session share a review. UNAUTHENTICATED: the session has ended.
  void WithRights(const std::shared_ptr<WebSession>& session, OnSession on_done);
  // Ends the session. Has no effect if it never ends (never_ends).
  void End(const std::shared_ptr<WebSession>& session);
  // Ends unused sessions, and updates the rights of the others.
  void Renew();
  size_t size() const { return sessions_.size(); }

 private:
  class Review;
  using OnReviewed = std::function<void(Status)>;
  struct PendingReview {
    std::shared_ptr<Review> review;
    std::vector<OnReviewed> waiting;
  };
  struct ReviewResult {
    std::string user;
    Rights rights;
  };

  void ReviewRights(const std::shared_ptr<WebSession>& session, OnReviewed on_done);
  void OnAnswer(const std::shared_ptr<WebSession>& session, Result<ReviewResult> answer);
  Status TakeAnswer(const std::shared_ptr<WebSession>& session, Result<ReviewResult> answer);
  void NotifyChanged(const WebSession& session);
  void MakeRoom();
  void MakeRoomFor(const std::string& user);
  bool HasEnded(const WebSession& session) const;

  net::IoThread& io_;
  TaskRunner& runner_;
  const kube::Config anonymous_;
  const KnownNamespaces namespaces_;
  std::map<std::string, std::shared_ptr<WebSession>, std::less<>> sessions_;
  std::map<std::shared_ptr<WebSession>, PendingReview> reviews_;  // not answered yet
  std::vector<std::shared_ptr<Review>> finished_reviews_;         // until their callbacks return
  std::function<void(const WebSession&)> on_changed_;
  WeakPtrFactory<WebSessions> weak_{this};
};

}  // namespace tessera::console
