// SPDX-License-Identifier: Apache-2.0
// Two replicas of the scheduler, of which one leads at a time, and kube-scheduler, which asks the
// leader about one pod after the other and binds while it goes on. Decisions are the product's own:
// ClusterLedger, Extender, Binder. The Lease is a stand-in with the rules of kube::LeaderElector:
// whoever leads stops before another may begin.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/ledger/ledger.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/extender.h"
#include "src/scheduler/metrics.h"
#include "tests/simulation/api_server.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

struct Lease {
  static constexpr Duration kDuration = std::chrono::seconds(15);
  static constexpr Duration kRenewDeadline = std::chrono::seconds(10);
  static constexpr Duration kRetryPeriod = std::chrono::seconds(2);

  int holder = -1;
  uint64_t renewals = 0;
};

class Replica final : private ApiServer::Listener, private scheduler::BindingApi {
 public:
  Replica(World& world, ApiServer& server, Lease& lease, int number);
  ~Replica() override;

  void Crash();
  // Null while it does not lead, or does not know the cluster yet.
  scheduler::Extender* extender() { return leads() && synced_ ? extender_.get() : nullptr; }
  const ledger::ClusterLedger* ledger() const { return ledger_.get(); }

 private:
  bool leads() const { return led_until_ > world_.clock().Now(); }
  void Start();
  void Elect();
  void Begin();
  void End();

  void OnNode(const kube::NodeObject& node) override { ledger_->SetNode(node); }
  void OnNodeGone(const kube::NodeObject& last) override { ledger_->RemoveNode(last.meta.name); }
  void OnPod(const kube::PodObject& pod) override;
  void OnPodGone(const kube::PodObject& last) override;
  void OnSynced() override { synced_ = true; }

  kube::Operation Bind(const kube::PodBinding& binding,
                       std::function<void(const Status&)> on_done) override;
  kube::Operation Read(const std::string& ns, const std::string& name,
                       std::function<void(const Result<kube::PodObject>&)> on_done) override;

  World& world_;
  ApiServer& server_;
  Lease& lease_;
  const int number_;
  scheduler::SchedulerMetrics metrics_;
  Life process_;
  Life term_;  // of leading
  MonotonicTime led_until_{};
  uint64_t seen_renewals_ = 0;
  MonotonicTime seen_at_{};
  bool synced_ = false;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
  std::unique_ptr<scheduler::Binder> binder_;
  std::unique_ptr<scheduler::Extender> extender_;
  std::unique_ptr<ApiServer::Feed> feed_;
};

class KubeScheduler {
 public:
  // `past_us`: percent of pods that are bound without asking anybody.
  KubeScheduler(World& world, ApiServer& server, std::vector<std::unique_ptr<Replica>>& replicas,
                int past_us);

 private:
  struct Waiting {
    MonotonicTime next;
    Duration pause{};
    bool binding = false;
  };

  void Cycle();
  void Schedule(const kube::PodObject& pod, Waiting& waiting);
  void BindSoon(const kube::PodObject& pod, const std::string& node);
  void BindPastUs(const kube::PodObject& pod, Waiting& waiting);
  void Again(Waiting& waiting);
  scheduler::Extender* Leader();

  World& world_;
  ApiServer& server_;
  std::vector<std::unique_ptr<Replica>>& replicas_;
  const int past_us_;
  std::map<std::string, Waiting> waiting_;  // by UID
  const Life life_ = Born();
};

}  // namespace tessera::simulation
