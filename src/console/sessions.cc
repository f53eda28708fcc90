// SPDX-License-Identifier: Apache-2.0
#include "src/console/sessions.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/strings.h"

namespace tessera::console {
namespace {

constexpr kube::ResourceType kSelfReviews{"authentication.k8s.io", "v1", "selfsubjectreviews",
                                          false};
constexpr kube::ResourceType kAccessReviews{"authorization.k8s.io", "v1",
                                            "selfsubjectaccessreviews", false};
// A person who may list pods of single namespaces is asked about at most so many.
constexpr size_t kMostNamespaces = 200;

Json ReviewOf(std::string_view group, std::string_view kind, Json spec) {
  Json review = Json::MakeObject(
      {{"apiVersion", Json::String(fmt::format("{}/v1", group))}, {"kind", Json::String(kind)}});
  if (!spec.is_null()) review.Set("spec", std::move(spec));
  return review;
}

Json MayList(std::string_view resource, std::string_view ns) {
  Json attributes =
      Json::MakeObject({{"verb", Json::String("list")}, {"resource", Json::String(resource)}});
  if (!ns.empty()) attributes.Set("namespace", Json::String(ns));
  return ReviewOf(kAccessReviews.group, "SelfSubjectAccessReview",
                  Json::MakeObject({{"resourceAttributes", std::move(attributes)}}));
}

bool IsAllowed(const Json& review) {
  const Json* status = review.Find("status");
  return status != nullptr && status->BoolAt("allowed").value_or(false);
}

}  // namespace

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

// The answers about one session. Ends with the first error, or when all have arrived.
class WebSessions::Review {
 public:
  Review(std::shared_ptr<WebSession> session, std::function<void(Status)> on_done)
      : session_(std::move(session)), on_done_(std::move(on_done)) {}

  void Start(std::set<std::string> namespaces) {
    Ask(kSelfReviews, ReviewOf(kSelfReviews.group, "SelfSubjectReview", {}),
        [this](const Json& review) {
          const Json* status = review.Find("status");
          const Json* user = status == nullptr ? nullptr : status->Find("userInfo");
          if (user != nullptr) session_->user = user->StringAt("username").value_or("");
        });
    Ask(kAccessReviews, MayList("nodes", ""),
        [this](const Json& review) { rights_.nodes = IsAllowed(review); });
    Ask(kAccessReviews, MayList("pods", ""), [this, namespaces](const Json& review) {
      rights_.all_pods = IsAllowed(review);
      if (!rights_.all_pods) AskAbout(namespaces);
    });
  }

 private:
  void AskAbout(const std::set<std::string>& namespaces) {
    size_t asked = 0;
    for (const std::string& ns : namespaces) {
      if (++asked > kMostNamespaces) break;
      Ask(kAccessReviews, MayList("pods", ns), [this, ns](const Json& review) {
        if (IsAllowed(review)) rights_.namespaces.insert(ns);
      });
    }
  }

  void Ask(const kube::ResourceType& type, const Json& review,
           std::function<void(const Json&)> on_answer) {
    ++open_;
    operations_.push_back(session_->client->Create(
        {type, "", "", ""}, review,
        [this, on_answer = std::move(on_answer)](const Result<Json>& answer) {
          --open_;
          if (!answer.ok()) return Finish(answer.status());
          on_answer(*answer);
          if (open_ > 0) return;
          session_->rights = std::move(rights_);
          Finish(Status::Ok());
        }));
  }

  void Finish(const Status& status) {
    if (on_done_) std::exchange(on_done_, nullptr)(status);
  }

  std::shared_ptr<WebSession> session_;
  std::function<void(Status)> on_done_;
  Rights rights_;
  size_t open_ = 0;
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
  session->began = session->used = session->asked = runner_.clock().Now();
  kube::ClientOptions options = kube::OptionsOf("tessera-console");
  options.max_attempts = 2;
  options.deadline = std::chrono::seconds(15);
  session->client = std::make_unique<kube::Client>(io_, runner_, std::move(config), options);
  Begin(session, std::move(on_done));
}

void WebSessions::Begin(const std::shared_ptr<WebSession>& session, OnSession on_done) {
  Ask(session, [this, session, on_done = std::move(on_done)](const Status& status) {
    if (!status.ok()) return on_done(status);
    MakeRoom();
    sessions_[session->id] = session;
    on_done(session);
  });
}

void WebSessions::Ask(const std::shared_ptr<WebSession>& session,
                      std::function<void(Status)> on_done) {
  const auto holder = std::make_shared<std::weak_ptr<Review>>();
  auto review = std::make_shared<Review>(
      session,
      [this, session, holder, on_done = std::move(on_done), weak = weak_.Get()](Status status) {
        if (!weak) return;
        // Kept until its callback has returned.
        const std::shared_ptr<Review> self = holder->lock();
        reviews_.erase(self);
        runner_.Post([self] {});
        if (status.ok()) session->asked = runner_.clock().Now();
        on_done(std::move(status));
      });
  *holder = review;
  reviews_.insert(review);
  review->Start(namespaces_());
}

std::shared_ptr<WebSession> WebSessions::Find(std::string_view id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  const std::shared_ptr<WebSession> session = found->second;
  if (HasEnded(*session)) {
    End(session);
    return nullptr;
  }
  session->used = runner_.clock().Now();
  return session;
}

bool WebSessions::HasEnded(const WebSession& session) const {
  const MonotonicTime now = runner_.clock().Now();
  return !session.lasting && (now - session.used > kIdle || now - session.began > kLongest);
}

void WebSessions::WithRights(const std::shared_ptr<WebSession>& session, OnSession on_done) {
  if (runner_.clock().Now() - session->asked <= 2 * kRenew) return on_done(session);
  Ask(session, [this, session, on_done = std::move(on_done)](const Status& status) {
    if (status.code() == Code::kUnauthenticated) End(session);
    status.ok() ? on_done(session) : on_done(status);
  });
}

void WebSessions::End(const std::shared_ptr<WebSession>& session) {
  session->ended = true;
  sessions_.erase(session->id);
}

void WebSessions::MakeRoom() {
  if (sessions_.size() < kMostSessions) return;
  const auto oldest =
      std::ranges::min_element(sessions_, {}, [](const auto& entry) { return entry.second->used; });
  const std::shared_ptr<WebSession> session = oldest->second;
  End(session);
}

void WebSessions::Renew(const std::function<void(const std::shared_ptr<WebSession>&)>& on_changed) {
  const auto all = sessions_;
  for (const auto& [id, session] : all) {
    if (HasEnded(*session)) {
      End(session);
      on_changed(session);
      continue;
    }
    // Others are asked about before their next use.
    if (runner_.clock().Now() - session->used > 2 * kRenew) continue;
    Ask(session, [this, session = session, before = session->rights, on_changed](Status status) {
      if (session->ended) return;
      // Without an answer the rights stay: the API server still checks every write.
      if (status.code() == Code::kUnauthenticated) {
        End(session);
      } else if (session->rights == before) {
        return;
      }
      on_changed(session);
    });
  }
}

}  // namespace tessera::console
