// SPDX-License-Identifier: Apache-2.0
#include "src/console/console.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/run_service.h"
#include "src/base/task_runner.h"
#include "src/base/version.h"
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

class WebConsole final : private ClusterModel::Delegate {
 public:
  WebConsole(net::IoThread& io, TaskRunner& runner, kube::Config config, ConsoleOptions options)
      : io_(io),
        runner_(runner),
        config_(std::move(config)),
        options_(std::move(options)),
        client_(io_, runner_, config_, kube::ClientOptionsFor("tessera-console")),
        model_(client_, options_.model, static_cast<ClusterModel::Delegate&>(*this)),
        sessions_(io_, runner_, WithoutCredentials(config_),
                  [this] { return model_.Namespaces(); }),
        viewers_(io_, runner_, model_, metrics_),
        meter_(options_.usage_label.empty() ? nullptr
                                            : std::make_unique<UsageMeter>(options_.usage_label)),
        agents_(client_, kPageTimeout),
        gauges_(client_),
        history_(options_.prometheus
                     ? std::make_unique<MetricHistory>(io_, runner_, *options_.prometheus)
                     : nullptr),
        oidc_(options_.oidc ? std::make_unique<OidcLogin>(io_, runner_, *options_.oidc) : nullptr),
        router_(
            runner_, model_, sessions_, viewers_, gauges_, meter_.get(), history_.get(),
            oidc_.get(), metrics_,
            RouterOptions{.secure_cookie = options_.tls.has_value() || options_.behind_https_proxy,
                          .dashboard = options_.dashboard,
                          .other_tenants = options_.model.other_tenants}) {
    sessions_.set_on_changed([this](const WebSession& session) { viewers_.OnSession(session); });
  }

  // Listens, and follows the cluster. In dashboard mode calls `on_url` once the user's credentials
  // have been checked: with the address to open, or with the error.
  Status Start(std::function<void(Result<std::string>)> on_url) {
    net::HttpServer::Options server_options{.address = options_.listen, .tls = options_.tls};
    server_options.limits.max_connections = kMaxConnections;
    ASSIGN_OR_RETURN(server_, net::HttpServer::Start(io_, runner_, server_options,
                                                     [this](const net::Request& request,
                                                            net::HttpServer::Reply reply) {
                                                       router_.Handle(request, std::move(reply));
                                                     }));
    if (options_.metrics_listen) RETURN_IF_ERROR(ServeMetrics());
    RenewLater();
    if (meter_) {
      TickLater();
      ReadAgentsLater(UsageMeter::kTick);
    }
    if (options_.dashboard) {
      sessions_.LogInWith(
          config_, [this, on_url = std::move(on_url)](Result<std::shared_ptr<WebSession>> session) {
            if (!session.ok()) return on_url(session.status());
            on_url(fmt::format("http://{}{}", server_->address().ToString(),
                               router_.MakeLoginPath(*session)));
          });
    }
    return Status::Ok();
  }

  // REQUIRES: Start succeeded.
  const net::Address& address() const { return server_->address(); }

 private:
  void OnChanges(const ClusterModel::Changes& changes) override { viewers_.OnChanges(changes); }
  void OnWatchError(std::string_view collection) override { metrics_.watch_errors.Add(collection); }
  void OnState() override {
    if (std::exchange(was_synced_, model_.synced()) != model_.synced()) sessions_.Renew();
    viewers_.OnState();
  }

  Status ServeMetrics() {
    net::HttpServer::Options status_options{.address = *options_.metrics_listen};
    status_options.limits.max_connections = 16;
    status_options.limits.max_body_bytes = 4 << 10;
    ASSIGN_OR_RETURN(status_server_,
                     net::HttpServer::Start(io_, runner_, std::move(status_options),
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
    ConsoleState state{.sessions = sessions_.size(),
                       .viewers = viewers_.size(),
                       .nodes = model_.nodes().size(),
                       .pods = model_.pods().size(),
                       .synced = model_.synced()};
    if (const auto outage = model_.outage())
      state.outage = runner_.clock().WallNow() - outage->since;
    return net::MetricsResponse(MetricsPage(metrics_, state));
  }

  void RenewLater() {
    runner_.PostDelayed(WebSessions::kRenewInterval, [this, weak = weak_.Get()] {
      if (!weak) return;
      sessions_.Renew();
      RenewLater();
    });
  }

  void TickLater() {
    runner_.PostDelayed(UsageMeter::kTick, [this, weak = weak_.Get()] {
      if (!weak) return;
      const Clock& clock = runner_.clock();
      if (model_.synced()) meter_->Tick(model_.ledger(), clock.Now(), clock.WallNow());
      TickLater();
    });
  }

  void ReadAgentsLater(Duration wait) {
    runner_.PostDelayed(wait, [this, weak = weak_.Get()] {
      if (weak) ReadAgents();
    });
  }

  void ReadAgents() {
    agents_.Read(
        "", {"/metrics"},
        [this](const kube::AgentPages::AgentPod& agent, std::string_view,
               const Result<std::string>& page) {
          ++agents_read_;
          if (page.ok() && model_.synced()) meter_->TakePage(model_.ledger(), agent.node, *page);
        },
        [this](const Status& status) {
          meter_->set_problem(status);
          const Duration pause =
              std::max(kMinReadInterval, kReadIntervalPerAgent * std::exchange(agents_read_, 0));
          ReadAgentsLater(status.ok() ? pause : kReadRetryInterval);
        });
  }

  net::IoThread& io_;
  TaskRunner& runner_;
  const kube::Config config_;
  const ConsoleOptions options_;
  ConsoleMetrics metrics_;
  kube::Client client_;
  ClusterModel model_;
  WebSessions sessions_;
  Viewers viewers_;
  const std::unique_ptr<UsageMeter> meter_;  // null: usage is not metered
  kube::AgentPages agents_;
  NodeGauges gauges_;
  const std::unique_ptr<MetricHistory> history_;  // null: there is no Prometheus
  const std::unique_ptr<OidcLogin> oidc_;         // null: users log in with tokens only
  ConsoleRouter router_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<net::HttpServer> status_server_;  // null: off
  bool was_synced_ = false;
  int64_t agents_read_ = 0;  // since the last pause
  WeakPtrFactory<WebConsole> weak_{this};
};

Result<kube::Config> ConfigOf(const ConsoleOptions& options) {
  if (options.context.empty()) return kube::FindConfig(options.kubeconfig);
  if (!options.kubeconfig.empty()) {
    return kube::LoadKubeconfigs(options.kubeconfig, options.context);
  }
  const char* paths = ::getenv("KUBECONFIG");
  if (paths != nullptr && *paths != '\0') return kube::LoadKubeconfigs(paths, options.context);
  return Error(Code::kInvalidArgument, "--context needs a kubeconfig: add --kubeconfig");
}

}  // namespace

int RunConsole(ConsoleOptions options) {
  const Fd signals = BlockSignals({SIGTERM, SIGINT});
  Result<kube::Config> config = ConfigOf(options);
  if (!config.ok()) return LogFailure(config.status());
  EpollTaskRunner runner;
  net::IoThread io;
  Status status;
  WebConsole console(io, runner, *std::move(config), std::move(options));
  runner.WatchReadable(signals.get(), [&] {
    signalfd_siginfo info;
    if (::read(signals.get(), &info, sizeof(info)) == sizeof(info)) runner.Quit();
  });
  runner.Post([&] {
    status = console.Start([&](const Result<std::string>& url) {
      if (!url.ok()) {
        status = url.status();
        return runner.Quit();
      }
      std::printf("%s\n", url->c_str());
      std::fflush(stdout);
    });
    if (!status.ok()) return runner.Quit();
    Log(Severity::kInfo, "tessera-console serves",
        {{"version", kTesseraVersion}, {"address", console.address().ToString()}});
  });
  runner.Run();
  runner.Unwatch(signals.get());
  return status.ok() ? 0 : LogFailure(status);
}

}  // namespace tessera::console
