// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/term.h"

#include <utility>

#include "src/base/log.h"

namespace tessera::scheduler {

Result<std::unique_ptr<Term>> Term::Begin(const Options& options, Dependencies dependencies) {
  ASSIGN_OR_RETURN(auto ledger, ledger::ClusterLedger::Make(options.ledger, &dependencies.clock));
  return std::unique_ptr<Term>(new Term(options, dependencies, std::move(ledger)));
}

Term::Term(const Options& options, const Dependencies& dependencies,
           std::unique_ptr<ledger::ClusterLedger> ledger)
    : clock_(dependencies.clock),
      metrics_(dependencies.metrics),
      on_synced_(dependencies.on_synced),
      begun_at_(dependencies.clock.Now()),
      ledger_(std::move(ledger)),
      binder_(std::make_unique<Binder>(*ledger_, dependencies.bindings, dependencies.clock,
                                       dependencies.may_write)),
      extender_(std::make_unique<Extender>(
          *ledger_, *binder_, dependencies.clock, dependencies.metrics,
          [this](const std::string& key) { return feed_->FindPod(key); }, dependencies.record_event,
          options.hold)),
      overassignment_evictor_(*ledger_, dependencies.evictions, dependencies.clock,
                              dependencies.metrics, dependencies.record_event) {
  feed_ = std::make_unique<ledger::ClusterFeed>(dependencies.client, *ledger_, options.feed,
                                                static_cast<ledger::ClusterFeed::Delegate&>(*this));
}

Term::~Term() = default;

void Term::Tick() {
  if (!synced()) return;
  extender_->Tick();
  binder_->Tick();
  overassignment_evictor_.Tick();
}

void Term::OnPod(const kube::PodObject& pod) {
  binder_->OnPod(pod);
  extender_->OnPod(pod);
}

void Term::OnPodGone(const Uid& uid) {
  binder_->OnPodGone(uid);
  extender_->OnPodGone(uid);
}

void Term::OnSynced() {
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.Now() - begun_at_);
  Log(Severity::kInfo, "the cluster has been read",
      {{"nodes", ledger_->nodes().size()},
       {"gpu_pods", ledger_->pods().size()},
       {"took_ms", took.count()}});
  on_synced_();
}

void Term::OnError(std::string_view what, const Status& status) {
  metrics_.feed_errors.Add(what);
  Log(Severity::kWarning, "cannot watch the API server, retrying",
      {{"what", what}, {"why", status.message()}});
}

void Term::OnInvalid(std::string_view what, const Status& status) {
  metrics_.feed_errors.Add(what);
  Log(Severity::kWarning, "an invalid object is ignored until it is corrected",
      {{"what", what}, {"why", status.message()}});
}

}  // namespace tessera::scheduler
