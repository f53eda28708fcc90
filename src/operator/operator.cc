// SPDX-License-Identifier: Apache-2.0
#include "src/operator/operator.h"

#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/kube/config.h"
#include "src/kube/events.h"
#include "src/kube/lease.h"
#include "src/net/http_server.h"

namespace tessera::operators {
namespace {

kube::ClientOptions ClientOptionsOf(size_t in_flight, Duration deadline) {
  kube::ClientOptions options = kube::ClientOptionsFor(names::kOperator);
  options.max_in_flight = in_flight;
  options.deadline = deadline;
  return options;
}

// Separate clients, so that a slow request does not delay renewals of the Lease.
struct ClientsOfOperator {
  ClientsOfOperator(net::IoThread& io, TaskRunner& runner, const kube::Config& config)
      : work(io, runner, config, ClientOptionsOf(8, std::chrono::seconds(30))),
        lease(io, runner, config, ClientOptionsOf(1, std::chrono::seconds(5))),
        events(io, runner, config, ClientOptionsOf(2, std::chrono::seconds(30))) {}
  kube::Client work, lease, events;
};

}  // namespace

class OperatorProgram::Impl : private kube::LeaderElector::Delegate {
 public:
  Impl(TaskRunner* runner, net::IoThread* io, Rendering rendering, OperatorOptions options)
      : runner_(*runner),
        io_(*io),
        rendering_(std::move(rendering)),
        options_(std::move(options)) {}

  Status Start();
  void Stop(std::function<void()> on_done);
  bool MayWrite() const {
    return !stopping_ && (!options_.leader_elect || (elector_ && elector_->leading()));
  }
  const OperatorMetrics& metrics() const { return metrics_; }
  const net::Address& address() const { return server_->address(); }

 private:
  Status Listen();
  void Answer(const net::Request& request, const net::HttpServer::Reply& reply) const;
  std::string NotReadyReason() const;
  void BeginTerm();

  void OnStartedLeading() override {
    lease_error_.clear();
    Log(Severity::kInfo, "leading", {{"identity", options_.election.identity}});
    BeginTerm();
  }
  void OnStoppedLeading(const Status& why) override {
    lease_error_ = why.message();
    Log(Severity::kWarning, "stopped leading", {{"why", lease_error_}});
    controller_.reset();
  }
  void OnLeader(const std::string& identity) override {
    leader_ = identity;
    if (identity != options_.election.identity) {
      Log(Severity::kInfo, "standing by", {{"leader", identity}});
    }
  }
  void OnError(const Status& status) override {
    lease_error_ = status.message();
    Log(Severity::kWarning, "cannot renew or acquire the Lease, retrying", {{"why", lease_error_}});
  }

  TaskRunner& runner_;
  net::IoThread& io_;
  const Rendering rendering_;
  OperatorOptions options_;
  OperatorMetrics metrics_;
  std::string own_ns_;
  std::unique_ptr<ClientsOfOperator> clients_;
  std::unique_ptr<kube::EventRecorder> events_;
  std::unique_ptr<kube::KubeLease> lease_;
  std::unique_ptr<kube::LeaderElector> elector_;
  std::unique_ptr<Controller> controller_;
  std::string leader_;
  std::string lease_error_;  // last error of renewing or acquiring the Lease
  bool stopping_ = false;
  std::unique_ptr<net::HttpServer> server_;
};

Status OperatorProgram::Impl::Start() {
  if (options_.election.identity.empty()) {
    options_.election.identity = kube::MakeElectionIdentity();
  }
  if (options_.leader_elect) RETURN_IF_ERROR(kube::CheckElectionOptions(options_.election));
  ASSIGN_OR_RETURN(const kube::Config config, kube::FindConfig(options_.kubeconfig));
  own_ns_ = config.default_namespace;
  clients_ = std::make_unique<ClientsOfOperator>(io_, runner_, config);
  events_ = std::make_unique<kube::EventRecorder>(
      clients_->events,
      kube::EventRecorder::Options{.component = std::string(names::kOperator),
                                   .instance = kube::HostName()},
      [](const Status& status) {
        Log(Severity::kWarning, "cannot record Event", {{"why", status.message()}});
      });
  RETURN_IF_ERROR(Listen());
  if (!options_.leader_elect) {
    BeginTerm();
    return {};
  }
  lease_ = std::make_unique<kube::KubeLease>(
      clients_->lease, options_.lease_ns.empty() ? own_ns_ : options_.lease_ns,
      std::string(names::kOperator));
  elector_ = std::make_unique<kube::LeaderElector>(
      runner_, *lease_, options_.election, static_cast<kube::LeaderElector::Delegate&>(*this));
  return {};
}

Status OperatorProgram::Impl::Listen() {
  if (options_.metrics_address.empty()) return {};
  net::HttpServer::Options options;
  ASSIGN_OR_RETURN(options.address,
                   net::ParseAddress(options_.metrics_address).Annotate("--metrics-address"));
  options.limits.max_connections = 16;
  options.limits.max_body_bytes = 4 << 10;
  ASSIGN_OR_RETURN(server_, net::HttpServer::Start(io_, runner_, std::move(options),
                                                   [this](const net::Request& request,
                                                          const net::HttpServer::Reply& reply) {
                                                     Answer(request, reply);
                                                   }));
  return {};
}

void OperatorProgram::Impl::Answer(const net::Request& request,
                                   const net::HttpServer::Reply& reply) const {
  const std::string_view path = request.path();
  if (!IsGetOrHead(request)) {
    return reply(net::TextResponse(405, "only GET\n"));
  }
  // A response proves that this thread runs.
  if (path == "/healthz") return reply(net::TextResponse(200, "ok\n"));
  if (path == "/readyz") {
    const std::string why = NotReadyReason();
    return reply(why.empty() ? net::TextResponse(200, "ok\n") : net::TextResponse(503, why + "\n"));
  }
  if (path != "/metrics") {
    return reply(net::TextResponse(404, "no such page: see /metrics, /healthz, /readyz\n"));
  }
  OperatorState state{.leading = MayWrite()};
  if (controller_) {
    state.synced = controller_->synced();
    state.status = controller_->status();
  }
  reply(net::MetricsResponse(MetricsPage(metrics_, state)));
}

std::string OperatorProgram::Impl::NotReadyReason() const {
  if (stopping_) return "this replica is stopping";
  if (!leader_.empty() && leader_ != options_.election.identity) return "";  // a standby is ready
  if (controller_) return "";  // the resource's status has the problems
  return lease_error_.empty() ? "no replica leads yet" : lease_error_;
}

void OperatorProgram::Impl::BeginTerm() {
  ControllerOptions options = options_.controller;
  options.ns = options_.ns.empty() ? own_ns_ : options_.ns;
  controller_ = std::make_unique<Controller>(
      ClusterAccess{clients_->work, *events_, metrics_,
                    [this] {
                      if (MayWrite()) return Status::Ok();
                      return Error(Code::kFailedPrecondition, "this replica no longer leads");
                    }},
      rendering_, std::move(options));
}

void OperatorProgram::Impl::Stop(std::function<void()> on_done) {
  stopping_ = true;
  controller_.reset();
  if (elector_) return elector_->Release(std::move(on_done));
  on_done();
}

OperatorProgram::OperatorProgram(TaskRunner* runner, net::IoThread* io, Rendering rendering,
                                 OperatorOptions options)
    : impl_(std::make_unique<Impl>(runner, io, std::move(rendering), std::move(options))) {}
OperatorProgram::~OperatorProgram() = default;

Status OperatorProgram::Start() { return impl_->Start(); }
void OperatorProgram::Stop(std::function<void()> on_done) { impl_->Stop(std::move(on_done)); }
bool OperatorProgram::leading() const { return impl_->MayWrite(); }
const OperatorMetrics& OperatorProgram::metrics() const { return impl_->metrics(); }
const net::Address& OperatorProgram::address() const { return impl_->address(); }

}  // namespace tessera::operators
