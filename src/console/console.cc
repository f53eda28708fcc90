// SPDX-License-Identifier: Apache-2.0
#include "src/console/console.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "src/console/metrics.h"
#include "src/console/node_gauges.h"
#include "src/console/router.h"
#include "src/console/sessions.h"
#include "src/console/usage_meter.h"
#include "src/console/viewers.h"
#include "src/kube/agent_pages.h"

namespace tessera::console {
namespace {

constexpr size_t kMaxConnections = 1024;
// The interval between reads of all agents. No usage is lost between two reads, because agents
// serve counters.
constexpr Duration kMinReadInterval = std::chrono::minutes(1);
// In large clusters the interval is longer: at least this time for each agent.
constexpr Duration kReadIntervalPerAgent = std::chrono::milliseconds(100);
constexpr Duration kReadRetryInterval = std::chrono::minutes(5);  // after an error
constexpr Duration kPageTimeout = std::chrono::seconds(10);
static_assert(kMaxConnections > 2 * Viewers::kMaxViewers, "streams leave room for requests");

kube::Config WithoutCredentials(kube::Config config) {
  config.token.clear();
  config.token_file.clear();
  config.exec.reset();
  config.impersonation = {};
  config.tls.certificate = {};
  config.tls.key = {};
  return config;
}

}  // namespace

struct WebConsole::Core final : private ClusterModel::Delegate {
  Core(net::IoThread& io_thread, TaskRunner& task_runner, kube::Config kube_config,
       ConsoleOptions console_options)
      : io(io_thread),
        runner(task_runner),
        config(std::move(kube_config)),
        options(std::move(console_options)),
        client(io, runner, config, kube::ClientOptionsFor("tessera-console")),
        model(client, options.model, static_cast<ClusterModel::Delegate&>(*this)),
        sessions(io, runner, WithoutCredentials(config), [this] { return model.Namespaces(); }),
        viewers(io, runner, model, metrics),
        meter(options.usage_label.empty() ? nullptr
                                          : std::make_unique<UsageMeter>(options.usage_label)),
        agents(client, kPageTimeout),
        gauges(client),
        history(options.prometheus
                    ? std::make_unique<MetricHistory>(io, runner, *options.prometheus)
                    : nullptr),
        oidc(options.oidc ? std::make_unique<OidcLogin>(io, runner, *options.oidc) : nullptr),
        router(runner, model, sessions, viewers, gauges, meter.get(), history.get(), oidc.get(),
               metrics,
               RouterOptions{.secure_cookie = options.tls.has_value() || options.behind_https_proxy,
                             .dashboard = options.dashboard,
                             .other_tenants = options.model.other_tenants}) {
    sessions.set_on_changed([this](const WebSession& session) { viewers.OnSession(session); });
  }

  void OnChanges(const ClusterModel::Changes& changes) override { viewers.OnChanges(changes); }
  void OnWatchError(std::string_view collection) override { metrics.watch_errors.Add(collection); }
  void OnState() override {
    if (std::exchange(was_synced_, model.synced()) != model.synced()) sessions.Renew();
    viewers.OnState();
  }

  Status Start(std::function<void(Result<std::string>)> on_url) {
    net::HttpServer::Options server_options{.address = options.listen, .tls = options.tls};
    server_options.limits.max_connections = kMaxConnections;
    ASSIGN_OR_RETURN(server, net::HttpServer::Start(
                                 io, runner, server_options,
                                 [this](const net::Request& request, net::HttpServer::Reply reply) {
                                   router.Handle(request, std::move(reply));
                                 }));
    if (options.metrics_listen) RETURN_IF_ERROR(ServeMetrics());
    RenewLater();
    if (meter) {
      TickLater();
      ReadAgentsLater(UsageMeter::kTick);
    }
    if (options.dashboard) {
      sessions.LogInWith(
          config, [this, on_url = std::move(on_url)](Result<std::shared_ptr<WebSession>> session) {
            if (!session.ok()) return on_url(session.status());
            on_url(fmt::format("http://{}{}", server->address().ToString(),
                               router.MakeLoginPath(*session)));
          });
    }
    return Status::Ok();
  }

  Status ServeMetrics() {
    net::HttpServer::Options status_options{.address = *options.metrics_listen};
    status_options.limits.max_connections = 16;
    status_options.limits.max_body_bytes = 4 << 10;
    ASSIGN_OR_RETURN(status_server,
                     net::HttpServer::Start(io, runner, std::move(status_options),
                                            [this](const net::Request& request, const auto& reply) {
                                              reply(AnswerStatus(request));
                                            }));
    return Status::Ok();
  }

  net::Response AnswerStatus(const net::Request& request) const {
    if (!IsGetOrHead(request)) return net::TextResponse(405, "only GET\n");
    // A response proves that this thread runs.
    if (request.path() == "/healthz") return net::TextResponse(200, "ok\n");
    if (request.path() != "/metrics") {
      return net::TextResponse(404, "no such page: see /metrics, /healthz\n");
    }
    ConsoleState state{.sessions = sessions.size(),
                       .viewers = viewers.size(),
                       .nodes = model.nodes().size(),
                       .pods = model.pods().size(),
                       .synced = model.synced()};
    if (const auto outage = model.outage()) state.outage = runner.clock().WallNow() - outage->since;
    return net::MetricsResponse(MetricsPage(metrics, state));
  }

  void RenewLater() {
    runner.PostDelayed(WebSessions::kRenewInterval, [this, weak = weak_.Get()] {
      if (!weak) return;
      sessions.Renew();
      RenewLater();
    });
  }

  void TickLater() {
    runner.PostDelayed(UsageMeter::kTick, [this, weak = weak_.Get()] {
      if (!weak) return;
      const Clock& clock = runner.clock();
      if (model.synced()) meter->Tick(model.ledger(), clock.Now(), clock.WallNow());
      TickLater();
    });
  }

  void ReadAgentsLater(Duration wait) {
    runner.PostDelayed(wait, [this, weak = weak_.Get()] {
      if (weak) ReadAgents();
    });
  }

  void ReadAgents() {
    agents.Read(
        "", {"/metrics"},
        [this](const kube::AgentPages::AgentPod& agent, std::string_view,
               const Result<std::string>& page) {
          ++agents_read_;
          if (page.ok() && model.synced()) meter->TakePage(model.ledger(), agent.node, *page);
        },
        [this](const Status& status) {
          meter->set_problem(status);
          const Duration pause =
              std::max(kMinReadInterval, kReadIntervalPerAgent * std::exchange(agents_read_, 0));
          ReadAgentsLater(status.ok() ? pause : kReadRetryInterval);
        });
  }

  net::IoThread& io;
  TaskRunner& runner;
  const kube::Config config;
  const ConsoleOptions options;
  ConsoleMetrics metrics;
  kube::Client client;
  ClusterModel model;
  WebSessions sessions;
  Viewers viewers;
  const std::unique_ptr<UsageMeter> meter;  // null: usage is not metered
  kube::AgentPages agents;
  NodeGauges gauges;
  const std::unique_ptr<MetricHistory> history;  // null: there is no Prometheus
  const std::unique_ptr<OidcLogin> oidc;         // null: users log in with tokens only
  ConsoleRouter router;
  std::unique_ptr<net::HttpServer> server;
  std::unique_ptr<net::HttpServer> status_server;  // null: off
  bool was_synced_ = false;
  int64_t agents_read_ = 0;  // since the last pause
  WeakPtrFactory<Core> weak_{this};
};

WebConsole::WebConsole(net::IoThread& io, TaskRunner& runner, kube::Config config,
                       ConsoleOptions options)
    : core_(std::make_unique<Core>(io, runner, std::move(config), std::move(options))) {}
WebConsole::~WebConsole() = default;

Status WebConsole::Start(std::function<void(Result<std::string>)> on_url) {
  return core_->Start(std::move(on_url));
}

const net::Address& WebConsole::address() const { return core_->server->address(); }

}  // namespace tessera::console
