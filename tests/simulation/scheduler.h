// SPDX-License-Identifier: Apache-2.0
// Two replicas of the scheduler, one of which leads, and kube-scheduler, which schedules one pod at
// a time with the replica in the EndpointSlice, and binds concurrently. A replica is the product's
// code without sockets: LeaderElector on a Lease, Client with its queue, Informer, Term with
// ledger, binder, extender and evictor, and LeaderEndpoint.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/uid.h"
#include "src/kube/client.h"
#include "src/kube/leader_election.h"
#include "src/kube/lease.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/leader_endpoint.h"
#include "src/scheduler/metrics.h"
#include "src/scheduler/overassignment_evictor.h"
#include "src/scheduler/term.h"
#include "tests/simulation/api_server.h"
#include "tests/simulation/connection.h"
#include "tests/simulation/process.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

class Replica final : private kube::LeaderElector::Delegate {
 public:
  Replica(World& world, ApiServer& server, int number);
  ~Replica() override;

  void Crash();
  // Suspends the process for `time`.
  void Suspend(Duration time);
  std::string address() const { return fmt::format("10.0.0.{}", number_ + 1); }
  // Calls `request` when the process reads the request, with null if the replica cannot decide.
  // Does not call it if the process crashes first.
  void Handle(std::function<void(scheduler::Extender*)> request);

  bool decides() const { return term_ && term_->synced() && elector_->leading(); }
  const ledger::ClusterLedger& ledger() const { return term_->ledger(); }
  uint64_t repairs() const;

 private:
  void Start();
  void Stop();
  void Tick();
  std::unique_ptr<kube::Client> ClientFor(size_t in_flight, Duration deadline);

  void OnStartedLeading() override;
  void OnStoppedLeading(const Status& why) override;
  void OnLeader(const std::string&) override {}
  void OnError(const Status&) override {}

  World& world_;
  ApiServer& server_;
  const int number_;
  int runs_ = 0;
  scheduler::SchedulerMetrics metrics_;
  // State of one process. The server's tasks may outlive it and read its term.
  struct Leading {
    kube::LeaderElector* elector = nullptr;
    int terms = 0;
    int term() const { return elector != nullptr && elector->leading() ? terms : 0; }
  };
  std::shared_ptr<Leading> leading_;
  std::unique_ptr<Process> process_;
  std::unique_ptr<kube::Client> feed_client_, bind_client_, lease_client_, endpoint_client_;
  std::unique_ptr<scheduler::KubeBindingApi> bindings_;
  std::unique_ptr<scheduler::KubeEvictionApi> evictions_;
  std::unique_ptr<kube::KubeLease> lease_;
  std::unique_ptr<kube::LeaderElector> elector_;
  std::unique_ptr<scheduler::Term> term_;
  std::unique_ptr<scheduler::LeaderEndpoint> endpoint_;
  const Life life_ = Born();
};

class KubeScheduler {
 public:
  // `bypass_percent`: percent of pods that are bound without the extender.
  KubeScheduler(World& world, ApiServer& server, std::vector<std::unique_ptr<Replica>>& replicas,
                int bypass_percent);

  // Pods that were bound without the extender, so without an assignment.
  const std::set<Uid>& bypassed() const { return bypassed_; }
  size_t preemptions() const { return preemptions_; }

 private:
  struct Waiting {
    MonotonicTime next_attempt;
    Duration pause{};
    bool busy = false;
    uint64_t seen = 0;  // last cycle in which the pod waited
  };
  struct CycleResult {
    std::string node;
    std::vector<Uid> victims;  // to evict from `node`
  };

  void Cycle();
  void Schedule(const kube::PodObject& pod, Waiting& waiting);
  CycleResult Decide(scheduler::Extender& extender, const kube::PodObject& pod);
  CycleResult Preempt(scheduler::Extender& extender, const kube::PodObject& pod);
  void OnDecision(const kube::PodObject& pod, const CycleResult& decision);
  void Nominate(const Uid& uid, const std::string& node);
  void BindSoon(const kube::PodObject& pod, const std::string& node);
  void BindWithoutExtender(const kube::PodObject& pod, Waiting& waiting);
  void RetryLater(const Uid& uid);
  Replica* Leader();

  World& world_;
  ApiServer& server_;
  std::vector<std::unique_ptr<Replica>>& replicas_;
  const int bypass_percent_;
  std::unordered_map<Uid, Waiting> waiting_;
  uint64_t cycle_ = 0;
  std::set<Uid> bypassed_;
  size_t preemptions_ = 0;
  const Life life_ = Born();
};

}  // namespace tessera::simulation
