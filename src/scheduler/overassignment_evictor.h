// SPDX-License-Identifier: Apache-2.0
// Detects over-assigned GPUs: bound pods are assigned more of the GPU than it has. The pod with the
// older binding stays, and the newer pod is evicted, so that its controller creates a replacement,
// which is scheduled again. Until then the agent rejects the newer pod's grant, so the pods never
// use more than the GPU has. Without the eviction, the newer pod would wait until the older pod
// ends.
//
// A GPU becomes over-assigned if a binding takes effect long after it was sent, when another
// replica already leads, or if other components bind pods and assign GPUs.
//
// - A conflict shorter than kConflictGrace is only the order of watch events, and is ignored.
// - A pod without a controller is not evicted, because it would be lost. An Event states the
//   remedy.
// - Evictions are made one at a time, kEvictionInterval apart, through the eviction API, which
//   honors PodDisruptionBudgets.
//
// Threads: the runner's. Ownership: all arguments outlive the evictor. Cost: a pass over all GPUs
// for each Tick.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/kube/client.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/extender.h"
#include "src/scheduler/metrics.h"

namespace tessera::scheduler {

class EvictionApi {
 public:
  virtual ~EvictionApi() = default;
  // Evicts the pod only if it has this UID. RESOURCE_EXHAUSTED: a PodDisruptionBudget currently
  // forbids it. Callbacks: as in BindingApi.
  virtual kube::Operation Evict(const std::string& ns, const std::string& name, const Uid& uid,
                                std::function<void(const Status&)> on_done) = 0;
};

// The API server's EvictionApi. The client outlives it.
class KubeEvictionApi final : public EvictionApi {
 public:
  KubeEvictionApi(kube::Client& client, kube::BeforeSend before_send)
      : client_(client), before_send_(std::move(before_send)) {}

  kube::Operation Evict(const std::string& ns, const std::string& name, const Uid& uid,
                        std::function<void(const Status&)> on_done) override;

 private:
  kube::Client& client_;
  const kube::BeforeSend before_send_;
};

class OverassignmentEvictor {
 public:
  static constexpr Duration kConflictGrace = std::chrono::seconds(10);
  static constexpr Duration kEvictionInterval = std::chrono::seconds(5);
  static constexpr Duration kRetryInterval = std::chrono::seconds(30);  // for one pod

  OverassignmentEvictor(const ledger::ClusterLedger& ledger, EvictionApi& api, const Clock& clock,
                        SchedulerMetrics& metrics, Extender::RecordEvent record_event);
  OverassignmentEvictor(const OverassignmentEvictor&) = delete;
  OverassignmentEvictor& operator=(const OverassignmentEvictor&) = delete;

  // Call about once a second.
  void Tick();

 private:
  struct PodConflict {
    MonotonicTime since;
    MonotonicTime next_try;
    bool event_recorded = false;
    bool seen_in_tick = false;
  };

  void RecordEvent(const ledger::ClusterLedger::Overassignment& conflict);
  void Evict(const ledger::ClusterLedger::Overassignment& conflict);

  const ledger::ClusterLedger& ledger_;
  EvictionApi& api_;
  const Clock& clock_;
  SchedulerMetrics& metrics_;
  const Extender::RecordEvent record_event_;
  std::map<Uid, PodConflict> conflicts_;  // by UID of the newer pod
  MonotonicTime next_eviction_{};
  kube::Operation eviction_;
  bool evicting_ = false;
};

}  // namespace tessera::scheduler
