// SPDX-License-Identifier: Apache-2.0
#include "src/console/router.h"

#include <utility>

#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/base/version.h"
#include "src/console/assets.h"
#include "src/console/insight.h"
#include "src/console/replies.h"

namespace tessera::console {
namespace {

constexpr std::string_view kOpenPath = "/open/";
constexpr std::string_view kNodesPath = "/api/v1/nodes/";
constexpr size_t kMaxTokenSessions = 200;
constexpr size_t kCookieSuffixLength = 8;

}  // namespace

ConsoleRouter::ConsoleRouter(TaskRunner& runner, ClusterModel& model, WebSessions& sessions,
                             Viewers& viewers, NodeGauges& gauges, const UsageMeter* meter,
                             MetricHistory* history, OidcLogin* oidc, ConsoleMetrics& metrics,
                             RouterOptions options)
    : runner_(runner),
      model_(model),
      sessions_(sessions),
      viewers_(viewers),
      gauges_(gauges),
      meter_(meter),
      history_(history),
      oidc_(oidc),
      metrics_(metrics),
      refresher_(oidc == nullptr ? nullptr : std::make_unique<TokenRefresher>(runner, *oidc)),
      options_(options),
      cookie_(
          SessionCookieName(options.secure_cookie,
                            options.dashboard ? RandomHex().substr(0, kCookieSuffixLength) : "")),
      login_cookie_(options.secure_cookie ? "__Host-tessera_login" : "tessera_login"),
      node_usage_(runner) {}

std::string ConsoleRouter::MakeLoginPath(const SessionPtr& session) {
  dashboard_session_ = session;
  session->never_ends = true;
  dashboard_path_ = std::string(kOpenPath) + RandomHex();
  return dashboard_path_;
}

std::string ConsoleRouter::CookieFor(const std::string& value) const {
  return fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict{}{}", cookie_, value,
                     options_.secure_cookie ? "; Secure" : "", value.empty() ? "; Max-Age=0" : "");
}

void ConsoleRouter::Handle(const net::Request& request, net::HttpServer::Reply reply) {
  const MonotonicTime began = runner_.clock().Now();
  const Reply guarded = [this, began, reply = std::move(reply)](net::Response response) {
    metrics_.responses.Add(fmt::format("{}", response.status));
    metrics_.latency.Observe(runner_.clock().Now() - began);
    AddSecurityHeaders(&response);
    reply(std::move(response));
  };
  if (request.path() == "/healthz") return guarded(net::TextResponse(200, "ok\n"));
  const Status checked = CheckRateAndHost(request);
  if (!checked.ok()) return guarded(ErrorResponse(checked));
  const std::string_view path = request.path();
  if (path.starts_with("/api/")) return HandleApi(request, guarded);
  if (path.starts_with(kOpenPath)) return OpenDashboard(request, guarded);
  if (path == kOidcLoginPath || path == kOidcCallbackPath) return HandleOidc(request, guarded);
  const net::Asset* asset = net::FindAsset(Assets(), path == "/" ? "/index.html" : path);
  if (asset == nullptr) return guarded(net::TextResponse(404, "no such page\n"));
  if (!IsGetOrHead(request)) return guarded(net::TextResponse(405, "only GET\n"));
  guarded(net::RespondAsset(*asset, request));
}

Status ConsoleRouter::CheckRateAndHost(const net::Request& request) {
  if (!request_limit_.Allow(request.peer, runner_.clock().Now())) {
    return Error(Code::kResourceExhausted, "too many requests from your address: wait a second");
  }
  if (options_.dashboard && !IsLoopbackHost(request.headers.Get("Host"))) {
    return Error(Code::kPermissionDenied, "invalid Host: open the address that was printed");
  }
  return Status::Ok();
}

void ConsoleRouter::OpenDashboard(const net::Request& request, const Reply& reply) {
  if (!dashboard_session_ || !SameSecret(request.path(), dashboard_path_)) {
    return reply(net::TextResponse(404, "no such page\n"));
  }
  net::Response response{303, {{"Location", "/"}, {"Cache-Control", "no-store"}}, ""};
  response.headers.Add("Set-Cookie", CookieFor(dashboard_session_->id));
  reply(std::move(response));
}

void ConsoleRouter::HandleApi(const net::Request& request, const Reply& reply) {
  if (!IsGetOrHead(request)) {
    const Status origin = CheckOrigin(request);
    if (!origin.ok()) return reply(ErrorResponse(origin));
  }
  if (request.path() == "/api/v1/login") return LogIn(request, reply);
  const bool by_cookie = BearerOf(request).empty();
  // A copy, because the request does not outlive this call.
  auto copy = std::make_shared<net::Request>(request);
  WithSession(request, reply, [this, copy, by_cookie, reply](const SessionPtr& session) {
    Route(*copy, session, by_cookie, reply);
  });
}

void ConsoleRouter::LogIn(const net::Request& request, const Reply& reply) {
  if (IsGetOrHead(request)) {
    // Tells the login page whether users can log in with OpenID Connect.
    Json login = Json::MakeObject();
    if (oidc_ != nullptr) login.Set("issuer", Json::String(oidc_->issuer_host()));
    return reply(JsonResponse(login));
  }
  if (request.method != "POST") return reply(MethodNotAllowed("GET, HEAD, POST"));
  if (options_.dashboard) {
    return reply(ErrorResponse(Error(Code::kPermissionDenied,
                                     "this console shows one user's kubeconfig: open the address "
                                     "that was printed")));
  }
  if (!login_limit_.Allow(request.peer, runner_.clock().Now())) {
    return reply(ErrorResponse(Error(Code::kResourceExhausted, "too many logins: wait a second")));
  }
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  const std::string token(Trim(body->StringAt("token").value_or("")));
  if (token.empty() || token.size() > kMaxTokenBytes ||
      token.find_first_of("\r\n \t") != std::string::npos) {
    return reply(ErrorResponse(
        Error(Code::kUnauthenticated, "invalid token: paste one token without blanks")));
  }
  sessions_.LogIn(token, [this, reply](const Result<SessionPtr>& session) {
    if (!session.ok()) return reply(ErrorResponse(session.status()));
    Log(Severity::kInfo, "login", {{"user", (*session)->user}});
    net::Response response = JsonResponse(Json::MakeObject({}));
    response.headers.Add("Set-Cookie", CookieFor((*session)->id));
    reply(std::move(response));
  });
}

void ConsoleRouter::LogOut(const SessionPtr& session, const Reply& reply) {
  sessions_.End(session);
  net::Response response = JsonResponse(Json::MakeObject({}));
  response.headers.Add("Set-Cookie", CookieFor(""));
  reply(std::move(response));
}

void ConsoleRouter::WithSession(const net::Request& request, const Reply& reply,
                                std::function<void(const SessionPtr&)> then) {
  const Status not_logged_in = Error(Code::kUnauthenticated, "log in first");
  const std::string token(BearerOf(request));
  const auto on_rights = [reply, then](const Result<SessionPtr>& session) {
    session.ok() ? then(*session) : reply(ErrorResponse(session.status()));
  };
  if (token.empty()) {
    const SessionPtr session = sessions_.Find(CookieOf(request, cookie_));
    if (!session) return reply(ErrorResponse(not_logged_in));
    return sessions_.WithRights(session, on_rights);
  }
  if (options_.dashboard || token.size() > kMaxTokenBytes)
    return reply(ErrorResponse(not_logged_in));
  const auto known = by_token_.find(token);
  if (known != by_token_.end()) {
    const SessionPtr session = sessions_.Find(known->second->id);
    if (session) return sessions_.WithRights(session, on_rights);
    by_token_.erase(known);
  }
  if (!login_limit_.Allow(request.peer, runner_.clock().Now())) {
    return reply(ErrorResponse(Error(Code::kResourceExhausted, "too many logins: wait a second")));
  }
  sessions_.LogIn(token,
                  [this, token, reply, then = std::move(then)](const Result<SessionPtr>& session) {
                    if (!session.ok()) return reply(ErrorResponse(session.status()));
                    if (by_token_.size() >= kMaxTokenSessions) by_token_.clear();
                    by_token_[token] = *session;
                    then(*session);
                  });
}

void ConsoleRouter::Route(const net::Request& request, const SessionPtr& session, bool by_cookie,
                          const Reply& reply) {
  if (session->ended) {
    return reply(
        ErrorResponse(Error(Code::kUnauthenticated, "the session has ended: log in again")));
  }
  if (!IsGetOrHead(request)) {
    if (by_cookie && !SameSecret(request.headers.Get(kCsrfHeader), session->csrf)) {
      return reply(ErrorResponse(Error(Code::kPermissionDenied,
                                       "the request lacks the page's token: load the page again")));
    }
    return RouteWrite(request, session, reply);
  }
  const std::string_view path = request.path();
  if (path == "/api/v1/session") return ShowSession(session, reply);
  if (path == "/api/v1/events") return Stream(session, reply);
  if (!model_.synced()) {
    const auto outage = model_.outage();
    return reply(ErrorResponse(outage ? outage->status
                                      : Error(Code::kUnavailable,
                                              "the cluster is being read: try "
                                              "again in a moment")));
  }
  if (path == "/api/v1/cluster") {
    return ReplyWithStream(viewers_.AddDownload(session),
                           {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}},
                           reply);
  }
  if (path == "/api/v1/explain") return Explain(request, *session, reply);
  if (path == "/api/v1/room") return ShowPodsToMove(request, *session, reply);
  if (path == "/api/v1/run" || path == "/api/v1/ended" || path == "/api/v1/missing-rights") {
    return ReadAsUser(request, session, reply);
  }
  if (path == "/api/v1/quota") return ShowQuotas(*session, reply);
  if (path == "/api/v1/models") {
    // Not a secret: a preview already tells each user how many nodes have a model.
    return reply(JsonResponse(Json::MakeObject({{"models", JsonOfModels(model_.ledger())}})));
  }
  if (path == "/api/v1/usage") return ShowUsage(*session, reply);
  if (path.starts_with(kNodesPath)) {
    return RouteNode(request, path.substr(kNodesPath.size()), session, reply);
  }
  reply(ErrorResponse(Error(Code::kNotFound, "no such path")));
}

void ConsoleRouter::RouteWrite(const net::Request& request, const SessionPtr& session,
                               const Reply& reply) {
  const std::string_view path = request.path();
  if (request.method != "POST") return reply(MethodNotAllowed("GET, HEAD, POST"));
  if (path == "/api/v1/logout") return LogOut(session, reply);
  if (!model_.synced()) {
    return reply(ErrorResponse(Error(Code::kUnavailable, "the cluster is being read")));
  }
  if (path == "/api/v1/preview") return PreviewWorkload(request, session, reply);
  if (path == "/api/v1/whatif") return AnswerWhatIf(request, *session, reply);
  if (path == "/api/v1/gauges") return ShowGauges(request, *session, reply);
  if (path == "/api/v1/quota/preview") return PreviewQuota(request, session, reply);
  if (path == "/api/v1/quota") return SetQuota(request, session, reply);
  if (path == "/api/v1/apply") return Apply(request, session, reply);
  if (path.starts_with(kNodesPath)) {
    return RouteNode(request, path.substr(kNodesPath.size()), session, reply);
  }
  reply(ErrorResponse(Error(Code::kNotFound, "no such path")));
}

void ConsoleRouter::KeepOperation(uint64_t number, const SessionPtr& session,
                                  kube::Operation operation) {
  // Members are destroyed in reverse order: the operation before its session's client.
  struct SessionOperation {
    SessionPtr session;
    kube::Operation operation;
  };
  tasks_[number] = std::make_shared<SessionOperation>(session, std::move(operation));
}

void ConsoleRouter::EndTask(uint64_t number) {
  // An operation must not be destroyed inside its callback.
  runner_.Post([this, number, weak = weak_.Get()] {
    if (weak) tasks_.erase(number);
  });
}

void ConsoleRouter::Send(const SessionPtr& session, const StartOperation& start,
                         kube::Client::OnObject then) {
  const uint64_t number = NewTask();
  KeepOperation(number, session, start([this, number, then = std::move(then)](Result<Json> answer) {
                  EndTask(number);
                  then(std::move(answer));
                }));
}

void ConsoleRouter::ReplyWithTask(
    const Reply& reply,
    const std::function<std::shared_ptr<void>(std::function<void(Result<Json>)>)>& make) {
  const uint64_t number = NewTask();
  tasks_[number] = make([this, number, reply](const Result<Json>& answer) {
    EndTask(number);
    reply(ResponseOf(answer));
  });
}

bool ConsoleRouter::CheckRateLimit(const WebSession& session, const Reply& reply) {
  if (costly_request_limit_.Allow(session.user, runner_.clock().Now())) return true;
  reply(ErrorResponse(Error(Code::kResourceExhausted, "too many requests: wait a second")));
  return false;
}

void ConsoleRouter::ShowSession(const SessionPtr& session, const Reply& reply) {
  reply(
      JsonResponse(Json::MakeObject({{"user", Json::String(session->user)},
                                     {"csrf", Json::String(session->csrf)},
                                     {"mayListNodes", Json::Bool(session->rights.nodes)},
                                     {"mayListAllPods", Json::Bool(session->rights.all_pods)},
                                     {"otherTenants", Json::String(NameOf(options_.other_tenants))},
                                     {"history", Json::Bool(history_ != nullptr)},
                                     {"dashboard", Json::Bool(options_.dashboard)},
                                     {"version", Json::String(kTesseraVersion)}})));
}

void ConsoleRouter::Stream(const SessionPtr& session, const Reply& reply) {
  // Without X-Accel-Buffering, nginx would buffer events before it forwards them.
  ReplyWithStream(viewers_.Add(session),
                  {{"Content-Type", "text/event-stream"},
                   {"Cache-Control", "no-store"},
                   {"X-Accel-Buffering", "no"}},
                  reply);
}

void ConsoleRouter::ReplyWithStream(Result<std::shared_ptr<net::StreamSink>> stream,
                                    net::Headers headers, const Reply& reply) {
  if (!stream.ok()) return reply(ErrorResponse(stream.status()));
  net::Response response{200, std::move(headers), ""};
  response.stream = *std::move(stream);
  reply(std::move(response));
}

}  // namespace tessera::console
