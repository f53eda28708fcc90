// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/scheduler.h"

#include <utility>

#include "api/names.h"
#include "src/admission/server.h"
#include "src/base/log.h"
#include "src/base/weak_ptr.h"
#include "src/certificates/certificate_plan.h"
#include "src/kube/config.h"
#include "src/kube/lease.h"
#include "src/net/http_server.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/extender_certificates.h"
#include "src/scheduler/leader_endpoint.h"
#include "src/scheduler/metrics.h"
#include "src/scheduler/overassignment_evictor.h"
#include "src/scheduler/router.h"
#include "src/scheduler/term.h"
#include "src/scheduler/verbs.h"
#include "src/scheduler/wait_for_zero.h"
#include "src/trace/tracer.h"

namespace tessera::scheduler {
namespace {

constexpr Duration kTickInterval = std::chrono::seconds(1);
static_assert(kBindDeadline < kStopTimeout);
static_assert(kBindDeadline <
              kube::ElectionOptions().lease_duration - kube::ElectionOptions().renew_deadline);
// A caller's certificate that expires within kWarnBefore is logged once in kWarnEvery. The Secret
// gets a new certificate four months before the old certificate expires (authority_plan.h), so the
// caller's files have been outdated for two months when the log begins.
constexpr Duration kWarnBefore = std::chrono::hours(24 * 60);
constexpr Duration kWarnEvery = std::chrono::hours(24);

kube::ClientOptions ClientFor(size_t in_flight, Duration deadline) {
  kube::ClientOptions options = kube::ClientOptionsFor(names::kScheduler);
  options.max_in_flight = in_flight;
  options.max_waiting = 4096;
  options.deadline = deadline;
  return options;
}

// Separate clients, so that many requests of one kind do not delay other requests, above all
// renewals of the Lease.
struct Clients {
  Clients(net::IoThread& io, TaskRunner& runner, const kube::Config& config,
          const kube::BeforeSend& check_leading)
      : feed(io, runner, config, ClientFor(8, std::chrono::seconds(60))),
        bind(io, runner, config, ClientFor(kMaxBindsInFlight, kBindDeadline)),
        lease(io, runner, config, ClientFor(1, std::chrono::seconds(5))),
        endpoint(io, runner, config, ClientFor(1, std::chrono::seconds(2))),
        events(io, runner, config, ClientFor(4, std::chrono::seconds(30))),
        bindings(bind),
        evictions(bind, check_leading) {}
  kube::Client feed, bind, lease, endpoint, events;
  KubeBindingApi bindings;
  KubeEvictionApi evictions;
};

}  // namespace

class Scheduler::Impl : private kube::LeaderElector::Delegate,
                        private ExtenderCertificates::Delegate {
 public:
  Impl(TaskRunner* runner, net::IoThread* io, SchedulerOptions options)
      : runner_(*runner), io_(*io), options_(std::move(options)) {}

  Status Start();
  void Stop(std::function<void()> on_done);
  const net::Address& address() const { return server_->address(); }

 private:
  Status Listen();
  // The initial TLS options of `address`.
  Result<std::optional<net::TlsOptions>> TlsAtStart() const;
  void KeepCertificates();
  bool makes_certificates() const {
    return !options_.plain_http && options_.tls.certificate.empty();
  }
  void CheckCallerCertificate(const net::Request& request);
  Status ServeAdmission();
  Status Elect();
  void BeginTerm();
  void Advertise();
  void Tick();
  void AddStatusPages(Router* router);
  SchedulerState StateNow() const;
  // "" if this replica can decide.
  std::string NotDecidingReason() const;
  // "" if this replica can decide, or is a standby.
  std::string NotReadyReason() const;
  const std::string& LeaseNamespace() const {
    return options_.lease_ns.empty() ? ns_ : options_.lease_ns;
  }
  trace::SpanRecorder span_recorder() const { return tracer_ ? tracer_->recorder() : nullptr; }
  bool MayWrite() const { return !options_.leader_elect || (elector_ && elector_->leading()); }
  Status CheckLeading() const {
    if (MayWrite()) return Status::Ok();
    return Error(Code::kFailedPrecondition, "this replica no longer leads");
  }
  void RecordEvent(const kube::PodObject& pod, kube::EventKind kind, std::string_view reason,
                   const std::string& message);

  void OnStartedLeading() override;
  void OnStoppedLeading(const Status& why) override;
  void OnLeader(const std::string& identity) override;
  void OnError(const Status& status) override {
    lease_error_ = status.message();
    Log(Severity::kWarning, "cannot renew or acquire the Lease, retrying", {{"why", lease_error_}});
  }

  void OnTls(const net::TlsOptions& tls) override;
  void OnCertificateProgress(const std::string& what) override { Log(Severity::kInfo, what); }
  void OnCertificateError(const Status& status) override {
    Log(Severity::kWarning, "cannot keep the extender's certificates, retrying",
        {{"error", status.ToString()}});
  }

  TaskRunner& runner_;
  net::IoThread& io_;
  SchedulerOptions options_;
  SchedulerMetrics metrics_;
  std::unique_ptr<trace::Tracer> tracer_;  // null: nothing is traced
  Router verbs_router_, status_router_;
  std::unique_ptr<Clients> clients_;
  std::unique_ptr<kube::EventRecorder> events_;
  std::unique_ptr<kube::KubeLease> lease_;
  std::unique_ptr<kube::LeaderElector> elector_;
  std::unique_ptr<Term> term_;
  std::unique_ptr<LeaderEndpoint> endpoint_;
  std::string ns_;  // this program's namespace
  std::string leader_;
  std::string lease_error_;  // last error of renewing or acquiring the Lease
  bool stopping_ = false;
  bool has_certificate_ = false;  // also true if no certificate is needed
  std::optional<WallTime> caller_certificate_ends_;
  MonotonicTime next_warning_;
  std::unique_ptr<net::HttpServer> server_, status_server_;
  std::unique_ptr<ExtenderCertificates> certificates_;
  std::unique_ptr<admission::AdmissionServer> admission_;
  WeakPtrFactory<Impl> weak_{this};
};

Status Scheduler::Impl::Start() {
  // Checked here, so that an invalid option fails at the start instead of when leading begins.
  RETURN_IF_ERROR(placement::FindPolicy(options_.ledger.policy).status().Annotate("--policy"));
  if (options_.election.identity.empty()) {
    options_.election.identity = kube::MakeElectionIdentity();
  }
  if (options_.leader_elect) RETURN_IF_ERROR(kube::CheckElectionOptions(options_.election));
  ASSIGN_OR_RETURN(const kube::Config config, kube::FindConfig(options_.kubeconfig));
  ns_ = config.default_namespace;
  clients_ = std::make_unique<Clients>(io_, runner_, config, [this] { return CheckLeading(); });
  events_ = std::make_unique<kube::EventRecorder>(
      clients_->events,
      kube::EventRecorder::Options{.component = std::string(names::kScheduler),
                                   .instance = kube::HostName()},
      [](const Status& status) {
        Log(Severity::kWarning, "cannot record Event", {{"why", status.message()}});
      });
  if (!options_.otlp_endpoint.empty()) {
    ASSIGN_OR_RETURN(tracer_, trace::Tracer::Start(io_, runner_, metrics_.trace,
                                                   {.endpoint = options_.otlp_endpoint,
                                                    .service = std::string(names::kScheduler)}));
  }
  RETURN_IF_ERROR(Listen());
  RETURN_IF_ERROR(ServeAdmission());
  RETURN_IF_ERROR(Elect());
  Tick();
  return {};
}

Status Scheduler::Impl::Listen() {
  AddVerbs(
      [this]() -> Result<ActiveTerm> {
        std::string why = NotDecidingReason();
        if (!why.empty()) return Status(Code::kUnavailable, std::move(why));
        return ActiveTerm{&term_->extender(), &term_->ledger()};
      },
      runner_.clock(), metrics_, span_recorder(), &verbs_router_);
  AddStatusPages(&verbs_router_);
  AddStatusPages(&status_router_);
  net::HttpServer::Options options;
  ASSIGN_OR_RETURN(options.address, net::ParseAddress(options_.address).Annotate("--address"));
  options.limits = LimitsOfVerbs(options_.max_request_bytes);
  ASSIGN_OR_RETURN(options.tls, TlsAtStart());
  ASSIGN_OR_RETURN(server_, net::HttpServer::Start(
                                io_, runner_, std::move(options),
                                [this](const net::Request& request, net::HttpServer::Reply reply) {
                                  CheckCallerCertificate(request);
                                  verbs_router_.Route(request, std::move(reply));
                                }));
  KeepCertificates();
  if (options_.metrics_address.empty()) return {};
  net::HttpServer::Options plain;
  ASSIGN_OR_RETURN(plain.address,
                   net::ParseAddress(options_.metrics_address).Annotate("--metrics-address"));
  plain.limits.max_connections = 16;
  plain.limits.max_body_bytes = 4 << 10;
  ASSIGN_OR_RETURN(status_server_, net::HttpServer::Start(io_, runner_, std::move(plain),
                                                          status_router_.AsHandler()));
  return {};
}

Result<std::optional<net::TlsOptions>> Scheduler::Impl::TlsAtStart() const {
  if (options_.plain_http) return {std::nullopt};
  if (!makes_certificates()) return {options_.tls};
  ASSIGN_OR_RETURN(net::TlsOptions placeholder,
                   certificates::PlaceholderTls(runner_.clock().WallNow()));
  return {std::move(placeholder)};
}

void Scheduler::Impl::KeepCertificates() {
  if (options_.plain_http) {
    Log(Severity::kWarning,
        "--insecure-plain-http: every caller that reaches the extender's port can bind pods",
        {{"address", options_.address}});
  }
  has_certificate_ = !makes_certificates();
  if (has_certificate_) return;
  ExtenderCertificateOptions options{.ns = ns_,
                                     .service = std::string(names::kScheduler),
                                     .authority_secret = std::string(names::kAuthoritySecret),
                                     .client_secret = std::string(names::kClientSecret)};
  if (!options_.advertise_address.empty()) {
    options.extra_addresses.push_back(options_.advertise_address);
  }
  certificates_ = std::make_unique<ExtenderCertificates>(
      clients_->feed, std::move(options), static_cast<ExtenderCertificates::Delegate&>(*this));
}

void Scheduler::Impl::OnTls(const net::TlsOptions& tls) {
  server_->SetTls(tls);
  if (std::exchange(has_certificate_, true)) return;
  if (term_ && term_->synced()) Advertise();
}

void Scheduler::Impl::CheckCallerCertificate(const net::Request& request) {
  if (!request.certificate_expiry) return;
  caller_certificate_ends_ = request.certificate_expiry;
  const Clock& clock = runner_.clock();
  if (*caller_certificate_ends_ - clock.WallNow() > kWarnBefore || clock.Now() < next_warning_)
    return;
  next_warning_ = clock.Now() + kWarnEvery;
  Log(Severity::kWarning,
      "kube-scheduler's client certificate expires soon: copy the files from the Secret again",
      {{"expires", Rfc3339(*caller_certificate_ends_)},
       {"secret", fmt::format("{}/{}", ns_, names::kClientSecret)}});
}

Status Scheduler::Impl::ServeAdmission() {
  if (options_.webhook_address.empty()) return {};
  const std::string name(names::kWebhook);
  admission::AdmissionServerOptions options{
      .admission = {.gpu_mem_unit = options_.ledger.gpu_mem_unit,
                    .runtime_class = options_.default_runtime_class},
      .certificates = {.ns = ns_,
                       .secret = name,
                       .certificate = {.names = certificates::ServiceNames(name, ns_,
                                                                           options_.webhook_names)},
                       .configurations = {{kube::kMutatingWebhooks, name, "", ""},
                                          {kube::kValidatingWebhooks, name, "", ""}}},
      .record_span = span_recorder()};
  ASSIGN_OR_RETURN(options.address,
                   net::ParseAddress(options_.webhook_address).Annotate("--webhook-address"));
  ASSIGN_OR_RETURN(admission_, admission::AdmissionServer::Start(
                                   io_, clients_->feed, std::move(options), [this] {
                                     return term_ && term_->synced() ? &term_->ledger() : nullptr;
                                   }));
  return {};
}

void Scheduler::Impl::AddStatusPages(Router* router) {
  router->Get("/metrics", [this](const net::Request&, net::HttpServer::Reply reply) {
    reply(net::MetricsResponse(MetricsPage(metrics_, StateNow())));
  });
  // The response is sent by this thread, so it proves that the thread runs.
  router->Get("/healthz", [](const net::Request&, net::HttpServer::Reply reply) {
    reply(net::TextResponse(200, "ok\n"));
  });
  router->Get("/readyz", [this](const net::Request&, net::HttpServer::Reply reply) {
    const std::string why = NotReadyReason();
    reply(why.empty() ? net::TextResponse(200, "ok\n") : net::TextResponse(503, why + "\n"));
  });
}

SchedulerState Scheduler::Impl::StateNow() const {
  SchedulerState state{.leading = MayWrite(),
                       .admission = admission_ ? &admission_->counts() : nullptr,
                       .caller_certificate_ends = caller_certificate_ends_};
  if (!term_) return state;
  state.synced = term_->synced();
  state.bindings_under_way = term_->bindings_under_way();
  state.ledger = &term_->ledger();
  state.wait_reasons = &term_->extender().wait_reasons();
  state.now = runner_.clock().WallNow();
  return state;
}

std::string Scheduler::Impl::NotReadyReason() const {
  const bool stands_by = !leader_.empty() && leader_ != options_.election.identity;
  return stands_by && !stopping_ ? "" : NotDecidingReason();
}

std::string Scheduler::Impl::NotDecidingReason() const {
  if (stopping_) return "this replica is stopping";
  if (!term_ || !MayWrite()) {
    if (leader_.empty()) return "no replica leads yet";
    if (leader_ != options_.election.identity) return "not the leader: " + leader_ + " leads";
    return "this replica holds the Lease but cannot act until the Lease is renewed: " +
           (lease_error_.empty() ? "the last renewal was too late" : lease_error_);
  }
  if (!has_certificate_) return "the extender's port has no certificate yet";
  return term_->synced() ? "" : "the cluster has not been read yet";
}

Status Scheduler::Impl::Elect() {
  if (!options_.leader_elect) {
    BeginTerm();
    return {};
  }
  lease_ = std::make_unique<kube::KubeLease>(clients_->lease, LeaseNamespace(),
                                             std::string(names::kScheduler));
  elector_ = std::make_unique<kube::LeaderElector>(
      runner_, *lease_, options_.election, static_cast<kube::LeaderElector::Delegate&>(*this));
  return {};
}

void Scheduler::Impl::BeginTerm() {
  options_.feed.watches_budgets = true;
  auto term = Term::Begin(
      {options_.ledger, options_.feed, options_.hold},
      {.client = clients_->feed,
       .bindings = clients_->bindings,
       .evictions = clients_->evictions,
       .clock = runner_.clock(),
       .metrics = metrics_,
       .may_write = [this] { return MayWrite(); },
       .record_event =
           [this](const kube::PodObject& pod, kube::EventKind kind, std::string_view reason,
                  const std::string& message) { RecordEvent(pod, kind, reason, message); },
       .on_synced = [this] { Advertise(); }});
  // Start has checked the policy.
  term_ = *std::move(term);
}

void Scheduler::Impl::Advertise() {
  if (options_.advertise_address.empty() || stopping_ || !has_certificate_) return;
  endpoint_ = std::make_unique<LeaderEndpoint>(
      clients_->endpoint,
      LeaderEndpointOptions{.ns = ns_,
                            .service = std::string(names::kScheduler),
                            .ip = options_.advertise_address,
                            .port = server_->address().port,
                            .lease_ns = LeaseNamespace(),
                            .lease = std::string(names::kScheduler),
                            .identity = options_.leader_elect ? options_.election.identity : "",
                            .before_send = [this] { return CheckLeading(); }},
      [](const Status& status) {
        Log(Severity::kWarning,
            "cannot publish the leader in the Service's EndpointSlice, retrying",
            {{"why", status.message()}});
      });
}

void Scheduler::Impl::OnStartedLeading() {
  lease_error_.clear();
  Log(Severity::kInfo, "leading", {{"identity", options_.election.identity}});
  BeginTerm();
}

void Scheduler::Impl::OnStoppedLeading(const Status& why) {
  lease_error_ = why.message();
  Log(Severity::kWarning, "stopped leading", {{"why", lease_error_}});
  endpoint_.reset();
  term_.reset();
}

void Scheduler::Impl::OnLeader(const std::string& identity) {
  leader_ = identity;
  if (identity != options_.election.identity) {
    Log(Severity::kInfo, "standing by", {{"leader", identity}});
  }
}

void Scheduler::Impl::RecordEvent(const kube::PodObject& pod, kube::EventKind kind,
                                  std::string_view reason, const std::string& message) {
  events_->Record({.kind = "Pod", .ns = pod.meta.ns, .name = pod.meta.name, .uid = pod.meta.uid},
                  kind, reason, message);
}

void Scheduler::Impl::Tick() {
  if (term_) term_->Tick();
  runner_.PostDelayed(kTickInterval, [this, weak = weak_.Get()] {
    if (weak) Tick();
  });
}

void Scheduler::Impl::Stop(std::function<void()> on_done) {
  stopping_ = true;
  const auto unanswered = [this, weak = weak_.Get()]() -> size_t {
    return weak && term_ ? term_->bindings_unanswered() : 0;
  };
  const auto stop_leading = [this, weak = weak_.Get(), on_done](size_t remaining) {
    if (!weak) return;
    if (remaining > 0) {
      Log(Severity::kWarning,
          "the Lease is not released: bindings without a response may still take effect",
          {{"bindings", remaining}});
    }
    const auto release = [this, weak, on_done, remaining] {
      if (!weak) return;
      if (elector_ && remaining == 0) return elector_->Release(on_done);
      on_done();
    };
    // Withdraws before the Lease is released: a later write could overwrite the EndpointSlice of
    // the next leader.
    if (endpoint_) return endpoint_->Withdraw(release);
    release();
  };
  WaitForZero(runner_, kStopTimeout, unanswered, stop_leading);
}

Scheduler::Scheduler(TaskRunner* runner, net::IoThread* io, SchedulerOptions options)
    : impl_(std::make_unique<Impl>(runner, io, std::move(options))) {}
Scheduler::~Scheduler() = default;

Status Scheduler::Start() { return impl_->Start(); }
void Scheduler::Stop(std::function<void()> on_done) { impl_->Stop(std::move(on_done)); }
const net::Address& Scheduler::address() const { return impl_->address(); }

}  // namespace tessera::scheduler
