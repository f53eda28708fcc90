// SPDX-License-Identifier: Apache-2.0
// Handles the HTTP paths of the console. Every path below /api needs a session, by cookie or by
// bearer token; writes by cookie also need the session's CSRF token and must come from this site.
//
// Threads: the runner's. Replies come later, and never after this object is destroyed.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/strings.h"
#include "src/base/weak_ptr.h"
#include "src/console/cluster_model.h"
#include "src/console/gate.h"
#include "src/console/metric_history.h"
#include "src/console/metrics.h"
#include "src/console/node_gauges.h"
#include "src/console/node_modes.h"
#include "src/console/node_usage.h"
#include "src/console/oidc.h"
#include "src/console/quota_edit.h"
#include "src/console/sessions.h"
#include "src/console/token_refresher.h"
#include "src/console/usage_meter.h"
#include "src/console/viewers.h"
#include "src/console/workload.h"
#include "src/net/http_server.h"

namespace tessera::console {

struct RouterOptions {
  bool secure_cookie = false;
  bool dashboard = false;
  OtherTenantsDetail other_tenants = OtherTenantsDetail::kShares;  // only reported to the page
};

class ConsoleRouter {
 public:
  static constexpr std::string_view kCsrfHeader = "X-Tessera-CSRF";
  static constexpr size_t kMaxTokenBytes = 8 << 10;

  // `meter`: null if usage is not metered. `history`: null if there is no Prometheus. `oidc`: null
  // if users log in with tokens only. All references and pointers must outlive the router.
  ConsoleRouter(TaskRunner& runner, ClusterModel& model, WebSessions& sessions, Viewers& viewers,
                NodeGauges& gauges, const UsageMeter* meter, MetricHistory* history,
                OidcLogin* oidc, ConsoleMetrics& metrics, RouterOptions options);

  void Handle(const net::Request& request, net::HttpServer::Reply reply);
  // Returns a path that logs in the browser that opens it, with this session.
  std::string MakeLoginPath(const std::shared_ptr<WebSession>& session);

 private:
  using Reply = net::HttpServer::Reply;
  using SessionPtr = std::shared_ptr<WebSession>;

  Status CheckRateAndHost(const net::Request& request);
  void HandleApi(const net::Request& request, const Reply& reply);
  void LogIn(const net::Request& request, const Reply& reply);
  void LogOut(const SessionPtr& session, const Reply& reply);
  void OpenDashboard(const net::Request& request, const Reply& reply);
  // Calls `then` with the session of the request, or replies with 401.
  void WithSession(const net::Request& request, const Reply& reply,
                   std::function<void(const SessionPtr&)> then);
  void Route(const net::Request& request, const SessionPtr& session, bool by_cookie,
             const Reply& reply);
  void RouteWrite(const net::Request& request, const SessionPtr& session, const Reply& reply);
  // Whether the user may make another costly request now; if not, replies with an error.
  bool CheckRateLimit(const WebSession& session, const Reply& reply);
  void ShowSession(const SessionPtr& session, const Reply& reply);
  void Stream(const SessionPtr& session, const Reply& reply);
  static void ReplyWithStream(Result<std::shared_ptr<net::StreamSink>> stream, net::Headers headers,
                              const Reply& reply);

  // Pending requests to the API server, made for a user. A task is kept until EndTask, even while
  // its callback runs.
  using StartOperation = std::function<kube::Operation(kube::Client::OnObject)>;
  uint64_t NewTask() { return ++last_task_; }
  void KeepOperation(uint64_t number, const SessionPtr& session, kube::Operation operation);
  void EndTask(uint64_t number);
  void Send(const SessionPtr& session, const StartOperation& start, kube::Client::OnObject then);
  // Keeps the object that `make(on_done)` returns until it has called `on_done` with the reply.
  void ReplyWithTask(
      const Reply& reply,
      const std::function<std::shared_ptr<void>(std::function<void(Result<Json>)>)>& make);

  // router_login.cc
  using OnFailure = std::function<void(const Status&)>;
  void HandleOidc(const net::Request& request, const Reply& reply);
  void BeginOidcLogin(const Reply& reply, const OnFailure& fail);
  void CompleteOidcLogin(const net::Request& request, const Reply& reply, const OnFailure& fail);
  std::string LoginCookieFor(std::string_view value) const;

  // router_nodes.cc. `rest`: what follows kNodesPath.
  void RouteNode(const net::Request& request, std::string_view rest, const SessionPtr& session,
                 const Reply& reply);
  void ShowNode(const std::string& name, const WebSession& session, const Reply& reply);
  void ShowNodeHistory(const net::Request& request, const std::string& name,
                       const SessionPtr& session, const Reply& reply);
  // Whether the user may read from agents; if not, replies with an error.
  static bool MayReadAgents(const WebSession& session, const Reply& reply);
  void ShowGauges(const net::Request& request, const WebSession& session, const Reply& reply);
  void DrainNode(const std::string& name, const Json& body, const SessionPtr& session,
                 const Reply& reply);
  void CordonNode(const std::string& name, const Json& body, const SessionPtr& session,
                  const Reply& reply);
  // Sends a merge patch with the user's rights.
  void PatchNode(const std::string& name, const Json& patch, const SessionPtr& session,
                 const Reply& reply);
  using OnModes = std::function<void(const std::vector<AgentPool>&, const StringMap& labels)>;
  void WithModes(const std::string& name, const SessionPtr& session, const Reply& reply,
                 const OnModes& then);
  void ShowModes(const std::string& name, const SessionPtr& session, const Reply& reply);
  void ChooseMode(const std::string& name, const Json& body, const SessionPtr& session,
                  const Reply& reply);

  // router_workloads.cc
  // The pod, if it exists and the user may see it; otherwise replies with an error and returns
  // null.
  const ledger::PodEntry* PodFor(const std::string& ns, const std::string& name,
                                 const WebSession& session, const Reply& reply) const;
  void Explain(const net::Request& request, const WebSession& session, const Reply& reply);
  void ShowPodsToMove(const net::Request& request, const WebSession& session, const Reply& reply);
  // Creates the manifest's object with the user's rights. Unknown fields are errors.
  void Create(const Manifest& manifest, bool dry_run, const SessionPtr& session,
              kube::Client::OnObject then);
  void AnswerWhatIf(const net::Request& request, const WebSession& session, const Reply& reply);
  void PreviewWorkload(const net::Request& request, const SessionPtr& session, const Reply& reply);
  void Apply(const net::Request& request, const SessionPtr& session, const Reply& reply);
  // Reads from the API server with the user's rights: how pods run, which pods have ended, and
  // which rights the user lacks.
  void ReadAsUser(const net::Request& request, const SessionPtr& session, const Reply& reply);

  // router_quotas.cc
  void ShowQuotas(const WebSession& session, const Reply& reply);
  void ShowUsage(const WebSession& session, const Reply& reply);
  void PreviewQuota(const net::Request& request, const SessionPtr& session, const Reply& reply);
  void SetQuota(const net::Request& request, const SessionPtr& session, const Reply& reply);
  void WriteQuota(const QuotaChange& change, const Result<Json>& map, const SessionPtr& session,
                  const Reply& reply);

  std::string CookieFor(const std::string& value) const;

  TaskRunner& runner_;
  ClusterModel& model_;
  WebSessions& sessions_;
  Viewers& viewers_;
  NodeGauges& gauges_;
  const UsageMeter* const meter_;
  MetricHistory* const history_;
  OidcLogin* const oidc_;
  ConsoleMetrics& metrics_;
  const std::unique_ptr<TokenRefresher> refresher_;  // null without oidc_
  const RouterOptions options_;
  const std::string cookie_;        // name of the session's cookie
  const std::string login_cookie_;  // name of the cookie during a login with OpenID Connect
  // By address of the peer, which may be a proxy for many users. The limit of logins only protects
  // the API server, which gets a few requests for each login: tokens cannot be guessed.
  RateLimit request_limit_{/*per_second=*/200, /*burst=*/1000};
  RateLimit login_limit_{/*per_second=*/2, /*burst=*/60};
  // By user. Each of these requests evaluates all nodes, or reads from an agent.
  RateLimit costly_request_limit_{/*per_second=*/10, /*burst=*/40};
  std::string dashboard_path_;
  SessionPtr dashboard_session_;
  std::map<std::string, SessionPtr, std::less<>> by_token_;  // sessions of bearer tokens
  NodeUsageReader node_usage_;
  uint64_t last_task_ = 0;
  std::map<uint64_t, std::shared_ptr<void>> tasks_;  // running
  WeakPtrFactory<ConsoleRouter> weak_{this};
};

}  // namespace tessera::console
