// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "src/scheduler/scheduler.h"
#include "tests/simulation/scheduler.h"

namespace tessera::simulation {

using namespace std::chrono_literals;

namespace {

constexpr const char* kNamespace = "kube-system";
constexpr const char* kName = "tessera-scheduler";

}  // namespace

Replica::Replica(World& world, ApiServer& server, int number)
    : world_(world), server_(server), number_(number) {
  Start();
}

Replica::~Replica() { Stop(); }

std::unique_ptr<kube::Client> Replica::ClientFor(size_t in_flight, Duration deadline) {
  const auto term = [leading = leading_] { return leading->term(); };
  const kube::Config config;  // with a temporary GCC 12 warns of uninitialized members
  return std::make_unique<kube::Client>(
      *process_, std::make_unique<Connection>(world_, server_, *process_, term), config,
      kube::ClientOptions{
          .deadline = deadline, .max_in_flight = in_flight, .seed = world_.random().Next()});
}

void Replica::Start() {
  process_ = std::make_unique<Process>(world_);
  leading_ = std::make_shared<Leading>();
  const kube::BeforeSend check_leading = [leading = leading_] {
    return leading->term() != 0 ? Status::Ok()
                                : Error(Code::kFailedPrecondition, "no longer leads");
  };
  feed_client_ = ClientFor(8, 60s);
  // Few concurrent requests, so that bindings queue.
  bind_client_ = ClientFor(2, scheduler::kBindDeadline);
  lease_client_ = ClientFor(1, 5s);
  endpoint_client_ = ClientFor(1, 2s);
  bindings_ = std::make_unique<scheduler::KubeBindingApi>(*bind_client_);
  evictions_ = std::make_unique<scheduler::KubeEvictionApi>(*bind_client_, check_leading);
  lease_ = std::make_unique<kube::KubeLease>(*lease_client_, kNamespace, kName);
  elector_ = std::make_unique<kube::LeaderElector>(
      *process_, *lease_, kube::ElectionOptions{.identity = fmt::format("{}-{}", number_, ++runs_)},
      static_cast<kube::LeaderElector::Delegate&>(*this), world_.random().Next());
  leading_->elector = elector_.get();
  Tick();
}

void Replica::Stop() {
  if (leading_) leading_->elector = nullptr;
  endpoint_.reset();
  term_.reset();
  elector_.reset();
  lease_.reset();
  evictions_.reset();
  bindings_.reset();
  endpoint_client_.reset();
  lease_client_.reset();
  bind_client_.reset();
  feed_client_.reset();
  process_.reset();
}

void Replica::Crash() {
  if (!process_) return;
  world_.Note(fmt::format("scheduler {} crashes", number_));
  Stop();
  // The next process has no state of the old one.
  world_.After(world_.Between(100ms, 5s), life_, [this] { Start(); });
}

void Replica::Suspend(Duration time) {
  if (!process_ || process_->suspended()) return;
  world_.Note(fmt::format("scheduler {} is suspended", number_));
  process_->Suspend(time);
}

void Replica::Tick() {
  if (term_) term_->Tick();
  process_->PostDelayed(1s, [this] { Tick(); });
}

void Replica::Handle(std::function<void(scheduler::Extender*)> request) {
  if (!process_) return;
  process_->Post(
      [this, request = std::move(request)] { request(decides() ? &term_->extender() : nullptr); });
}

uint64_t Replica::repairs() const {
  const auto values = metrics_.overassignment_evictions.values();
  const auto found = values.find("evicted");
  return found == values.end() ? 0 : found->second;
}

void Replica::OnStartedLeading() {
  world_.Note(fmt::format("scheduler {} leads", number_));
  ++leading_->terms;
  scheduler::Term::Options options;
  options.feed.watches_budgets = true;
  auto term = scheduler::Term::Begin(
      options,
      {.client = *feed_client_,
       .bindings = *bindings_,
       .evictions = *evictions_,
       .clock = world_.clock(),
       .metrics = metrics_,
       .may_write = [this] { return elector_->leading(); },
       .record_event = [](const kube::PodObject&, kube::EventKind, std::string_view,
                          const std::string&) {},
       .on_synced =
           [this] {
             endpoint_ = std::make_unique<scheduler::LeaderEndpoint>(
                 *endpoint_client_,
                 scheduler::LeaderEndpointOptions{.ns = kNamespace,
                                                  .service = kName,
                                                  .ip = address(),
                                                  .port = 9410,
                                                  .lease_ns = kNamespace,
                                                  .lease = kName,
                                                  .identity = fmt::format("{}-{}", number_, runs_)},
                 [](const Status&) {});
           }});
  term_ = *std::move(term);
}

void Replica::OnStoppedLeading(const Status& why) {
  world_.Note(fmt::format("scheduler {} no longer leads: {}", number_, why.message()));
  endpoint_.reset();
  term_.reset();
}

}  // namespace tessera::simulation
