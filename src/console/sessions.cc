// SPDX-License-Identifier: Apache-2.0
#include "src/console/sessions.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"

namespace tessera::console {
namespace {

constexpr kube::ResourceType kSelfReviews{"authentication.k8s.io", "v1", "selfsubjectreviews",
                                          false};
// For a user who may list pods only in single namespaces, at most this many namespaces are checked.
constexpr size_t kMaxNamespaces = 200;

Json ReviewOf(std::string_view group, std::string_view kind, Json spec) {
  Json review = Json::MakeObject(
      {{"apiVersion", Json::String(fmt::format("{}/v1", group))}, {"kind", Json::String(kind)}});
  if (!spec.is_null()) review.Set("spec", std::move(spec));
  return review;
}

constexpr kube::ResourceType kAccessReviews{"authorization.k8s.io", "v1",
                                            "selfsubjectaccessreviews", false};

Json AccessReview(const AccessRequest& access) {
  const size_t slash = access.resource.find('/');
  Json attributes =
      Json::MakeObject({{"verb", Json::String(access.verb)},
                        {"resource", Json::String(access.resource.substr(0, slash))}});
  const auto add = [&attributes](const char* key, const std::string& value) {
    if (!value.empty()) attributes.Set(key, Json::String(value));
  };
  if (slash != std::string::npos) add("subresource", access.resource.substr(slash + 1));
  add("group", access.group);
  add("namespace", access.ns);
  add("name", access.name);
  return ReviewOf(kAccessReviews.group, "SelfSubjectAccessReview",
                  Json::MakeObject({{"resourceAttributes", std::move(attributes)}}));
}

Json ListReview(std::string_view resource, std::string_view ns) {
  return AccessReview({.verb = "list", .resource = std::string(resource), .ns = std::string(ns)});
}

}  // namespace

kube::Operation CheckAccess(kube::Client& client, const AccessRequest& access,
                            kube::Client::OnObject on_answer) {
  return client.Create({kAccessReviews, "", "", ""}, AccessReview(access), std::move(on_answer));
}

bool IsAllowed(const Json& review) {
  const Json* status = review.Find("status");
  return status != nullptr && status->BoolAt("allowed").value_or(false);
}

std::string RandomHex() {
  std::array<char, 32> bytes;
  TESSERA_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return HexEncode({bytes.data(), bytes.size()});
}

std::string Rights::Key() const {
  std::string key = nodes ? "nodes;" : ";";
  if (all_pods) return key + "*";
  for (const std::string& ns : namespaces) key += ns + ",";
  return key;
}

std::function<bool(const std::string&)> PodsSeenBy(const Rights& rights) {
  if (rights.all_pods) return nullptr;
  return [&rights](const std::string& ns) { return rights.SeesPodsOf(ns); };
}

// Collects the answers about one session. Ends with the first error, or when all answers have
// arrived.
class WebSessions::Review {
 public:
  Review(std::shared_ptr<WebSession> session, std::function<void(Result<ReviewResult>)> on_done)
      : session_(std::move(session)), on_done_(std::move(on_done)) {}

  void Start(const std::set<std::string>& namespaces) {
    SendReview(kSelfReviews, ReviewOf(kSelfReviews.group, "SelfSubjectReview", {}),
               [this](const Json& review) {
                 const Json* status = review.Find("status");
                 const Json* user = status == nullptr ? nullptr : status->Find("userInfo");
                 if (user != nullptr) answer_.user = user->StringAt("username").value_or("");
               });
    SendReview(kAccessReviews, ListReview("nodes", ""),
               [this](const Json& review) { answer_.rights.nodes = IsAllowed(review); });
    SendReview(
        kAccessReviews,
        AccessReview(
            {.verb = "get", .resource = "pods/proxy", .ns = std::string(names::kSystemNamespace)}),
        [this](const Json& review) { answer_.rights.agents = IsAllowed(review); });
    SendReview(kAccessReviews, ListReview("pods", ""), [this, namespaces](const Json& review) {
      answer_.rights.all_pods = IsAllowed(review);
      if (!answer_.rights.all_pods) CheckNamespaces(namespaces);
    });
  }

 private:
  void CheckNamespaces(const std::set<std::string>& namespaces) {
    size_t checked = 0;
    for (const std::string& ns : namespaces) {
      if (++checked > kMaxNamespaces) break;
      SendReview(kAccessReviews, ListReview("pods", ns), [this, ns](const Json& review) {
        if (IsAllowed(review)) answer_.rights.namespaces.insert(ns);
      });
    }
  }

  void SendReview(const kube::ResourceType& type, const Json& review,
                  std::function<void(const Json&)> on_answer) {
    ++unanswered_;
    operations_.push_back(session_->client->Create(
        {type, "", "", ""}, review,
        [this, on_answer = std::move(on_answer)](const Result<Json>& answer) {
          if (!on_done_) return;  // an earlier answer was an error
          if (!answer.ok()) return Finish(answer.status());
          --unanswered_;
          on_answer(*answer);
          if (unanswered_ == 0) Finish(std::move(answer_));
        }));
  }

  void Finish(Result<ReviewResult> answer) { std::exchange(on_done_, nullptr)(std::move(answer)); }

  std::shared_ptr<WebSession> session_;
  std::function<void(Result<ReviewResult>)> on_done_;
  ReviewResult answer_;
  size_t unanswered_ = 0;
  std::vector<kube::Operation> operations_;
};

WebSessions::WebSessions(net::IoThread& io, TaskRunner& runner, kube::Config anonymous,
                         KnownNamespaces namespaces)
    : io_(io),
      runner_(runner),
      anonymous_(std::move(anonymous)),
      namespaces_(std::move(namespaces)) {}

void WebSessions::LogIn(const std::string& token, OnSession on_done) {
  kube::Config config = anonymous_;
  config.token = token;
  LogInWith(std::move(config), std::move(on_done));
}

void WebSessions::LogInWith(kube::Config config, OnSession on_done) {
  auto session = std::make_shared<WebSession>();
  session->id = RandomHex();
  session->csrf = RandomHex();
  session->began_at = session->last_used_at = session->rights_checked_at = runner_.clock().Now();
  kube::ClientOptions options = kube::ClientOptionsFor("tessera-console");
  options.max_attempts = 2;
  options.max_in_flight = 2;  // one user must not slow down the API server for others
  options.deadline = std::chrono::seconds(15);
  session->client = std::make_unique<kube::Client>(io_, runner_, std::move(config), options);
  ReviewRights(session, [this, session, on_done = std::move(on_done)](const Status& status) {
    if (!status.ok()) return on_done(status);
    MakeRoomFor(session->user);
    MakeRoom();
    sessions_[session->id] = session;
    on_done(session);
  });
}

void WebSessions::ReviewRights(const std::shared_ptr<WebSession>& session, OnReviewed on_done) {
  PendingReview& pending = reviews_[session];
  pending.waiting.push_back(std::move(on_done));
  if (pending.review) return;
  pending.review = std::make_shared<Review>(
      session, [this, session, weak = weak_.Get()](Result<ReviewResult> answer) {
        if (weak) OnAnswer(session, std::move(answer));
      });
  pending.review->Start(namespaces_());
}

void WebSessions::OnAnswer(const std::shared_ptr<WebSession>& session,
                           Result<ReviewResult> answer) {
  const auto pending = reviews_.extract(session);
  // Destroyed later, because the review calls this function.
  finished_reviews_.push_back(std::move(pending.mapped().review));
  runner_.Post([this, weak = weak_.Get()] {
    if (weak) finished_reviews_.clear();
  });
  const Status status = TakeAnswer(session, std::move(answer));
  for (const OnReviewed& on_done : pending.mapped().waiting) on_done(status);
}

Status WebSessions::TakeAnswer(const std::shared_ptr<WebSession>& session,
                               Result<ReviewResult> answer) {
  if (session->ended) {
    return Error(Code::kUnauthenticated, "the session has ended: log in again");
  }
  if (answer.status().code() == Code::kUnauthenticated) End(session);
  if (!answer.ok()) return answer.status();
  session->rights_checked_at = runner_.clock().Now();
  session->user = std::move(answer->user);
  if (session->rights == answer->rights) return Status::Ok();
  session->rights = std::move(answer->rights);
  if (sessions_.contains(session->id)) NotifyChanged(*session);
  return Status::Ok();
}

void WebSessions::NotifyChanged(const WebSession& session) {
  if (on_changed_) on_changed_(session);
}

std::shared_ptr<WebSession> WebSessions::Find(std::string_view id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  std::shared_ptr<WebSession> session = found->second;
  if (HasEnded(*session)) {
    End(session);
    return nullptr;
  }
  session->last_used_at = runner_.clock().Now();
  return session;
}

bool WebSessions::HasEnded(const WebSession& session) const {
  const MonotonicTime now = runner_.clock().Now();
  return !session.never_ends &&
         (now - session.last_used_at > kMaxIdle || now - session.began_at > kMaxLifetime);
}

void WebSessions::WithRights(const std::shared_ptr<WebSession>& session, OnSession on_done) {
  if (runner_.clock().Now() - session->rights_checked_at <= 2 * kRenewInterval)
    return on_done(session);
  ReviewRights(session, [session, on_done = std::move(on_done)](const Status& status) {
    status.ok() ? on_done(session) : on_done(status);
  });
}

void WebSessions::End(const std::shared_ptr<WebSession>& session) {
  if (session->never_ends) return;
  session->ended = true;
  if (sessions_.erase(session->id) > 0) NotifyChanged(*session);
}

void WebSessions::MakeRoom() {
  if (sessions_.size() < kMaxSessions) return;
  const auto oldest = std::ranges::min_element(
      sessions_, {}, [](const auto& entry) { return entry.second->last_used_at; });
  const std::shared_ptr<WebSession> session = oldest->second;
  End(session);
}

void WebSessions::MakeRoomFor(const std::string& user) {
  size_t count = 0;
  std::shared_ptr<WebSession> oldest;
  for (const auto& [id, session] : sessions_) {
    if (session->user != user) continue;
    ++count;
    if (!oldest || session->began_at < oldest->began_at) oldest = session;
  }
  if (count >= kMaxSessionsPerUser) End(oldest);
}

void WebSessions::Renew() {
  const auto all = sessions_;
  for (const auto& [id, session] : all) {
    if (HasEnded(*session)) {
      End(session);
    } else if (runner_.clock().Now() - session->last_used_at <= 2 * kRenewInterval) {
      // If the API server does not answer, the session keeps its rights, because the API server
      // still checks every write.
      ReviewRights(session, [](const Status&) {});
    }  // The rights of other sessions are checked before their next use.
  }
}

}  // namespace tessera::console
