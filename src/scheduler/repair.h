// SPDX-License-Identifier: Apache-2.0
// Detects GPUs that were assigned beyond what they have, and repairs it: the older binding wins,
// and the newer pod is evicted, so that its controller makes it anew and it is scheduled again. The
// agent refuses the newer pod its GPU meanwhile, so no GPU is shared against its limits; without a
// repair the pod would wait for as long as the older one runs.
//
// That happens where a binding takes effect long after it was sent, when another replica leads
// already, or where others than Tessera bind pods and assign GPUs.
//
//   - What lasts for less than `settle` is the order in which news came, and is left alone.
//   - A pod without a controller is not evicted, because it would be gone for good. An Event says
//     what to do.
//   - Evictions go one by one, `pause` apart, through the eviction API, which honors
//     PodDisruptionBudgets.
//
// Threads: the runner's. Ownership: all that is given in outlives it. Cost: a look at all GPUs for
// each Tick.
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
  // Of the pod with this UID alone. RESOURCE_EXHAUSTED: a PodDisruptionBudget forbids it now.
  // Callbacks as those of BindingApi.
  virtual kube::Operation Evict(const std::string& ns, const std::string& name, const Uid& uid,
                                std::function<void(const Status&)> on_done) = 0;
};

struct RepairOptions {
  Duration settle = std::chrono::seconds(10);
  Duration pause = std::chrono::seconds(5);
  Duration retry = std::chrono::seconds(30);  // of one pod
};

class Repair {
 public:
  Repair(const ledger::ClusterLedger& ledger, EvictionApi& api, const Clock& clock,
         SchedulerMetrics& metrics, Extender::Tell tell, RepairOptions options = {});
  Repair(const Repair&) = delete;
  Repair& operator=(const Repair&) = delete;

  // Call it every second or so.
  void Tick();

 private:
  struct Case {
    MonotonicTime since;
    MonotonicTime next_try;
    bool told = false;
    bool current = false;
  };

  void Tell(const ledger::ClusterLedger::Overassignment& one);
  void Evict(const ledger::ClusterLedger::Overassignment& one);

  const ledger::ClusterLedger& ledger_;
  EvictionApi& api_;
  const Clock& clock_;
  SchedulerMetrics& metrics_;
  const Extender::Tell tell_;
  const RepairOptions options_;
  std::map<Uid, Case> cases_;  // by the pod in excess
  MonotonicTime next_eviction_{};
  kube::Operation eviction_;
  bool evicting_ = false;
};

}  // namespace tessera::scheduler
