// SPDX-License-Identifier: Apache-2.0
// One term of leading: ledger, feed, binder, extender and the evictor of over-assigned pods.
// Created when leading begins and destroyed when it ends, so that no outdated state is used.
// Threads: the runner's. Ownership: all dependencies outlive the term.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/clock.h"
#include "src/kube/client.h"
#include "src/ledger/feed.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/extender.h"
#include "src/scheduler/metrics.h"
#include "src/scheduler/overassignment_evictor.h"

namespace tessera::scheduler {

class Term final : private ledger::ClusterFeed::Delegate {
 public:
  struct Dependencies {
    kube::Client& client;  // used by the feed
    BindingApi& bindings;
    EvictionApi& evictions;
    const Clock& clock;
    SchedulerMetrics& metrics;
    Binder::MayWrite may_write;
    Extender::RecordEvent record_event;
    std::function<void()> on_synced;
  };
  struct Options {
    ledger::LedgerOptions ledger;
    ledger::FeedOptions feed;
    HoldOptions hold;
  };
  // INVALID_ARGUMENT: see ClusterLedger::Make.
  static Result<std::unique_ptr<Term>> Begin(const Options& options, Dependencies dependencies);
  ~Term() override;

  bool synced() const { return feed_->synced(); }
  Extender& extender() { return *extender_; }
  const ledger::ClusterLedger& ledger() const { return *ledger_; }
  size_t bindings_under_way() const { return binder_->pending_count(); }
  size_t bindings_unanswered() const { return binder_->unanswered_count(); }
  // Call about once a second.
  void Tick();

 private:
  Term(const Options& options, const Dependencies& dependencies,
       std::unique_ptr<ledger::ClusterLedger> ledger);

  void OnSynced() override;
  void OnPod(const kube::PodObject& pod) override;
  void OnPodGone(const Uid& uid) override;
  void OnError(std::string_view what, const Status& status) override;
  void OnInvalid(std::string_view what, const Status& status) override;

  const Clock& clock_;
  SchedulerMetrics& metrics_;
  const std::function<void()> on_synced_;
  const MonotonicTime begun_at_;
  const std::unique_ptr<ledger::ClusterLedger> ledger_;
  std::unique_ptr<Binder> binder_;
  std::unique_ptr<Extender> extender_;
  OverassignmentEvictor overassignment_evictor_;
  std::unique_ptr<ledger::ClusterFeed> feed_;
};

}  // namespace tessera::scheduler
