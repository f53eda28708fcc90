// SPDX-License-Identifier: Apache-2.0
// The verbs of a scheduler extender as decisions on the ledger: which nodes fit, their scores, and
// which pods preemption must evict. Does not write to the API server; binder.h binds.
//
// kube-scheduler filters for the next pod before it has bound the previous pod. Therefore GPUs of
// the best node are held (holds.h) for a pod as soon as the node is known: by prioritize, or by
// filter if only one node fits, because kube-scheduler then skips prioritize. A hold ends with
// another request about the pod, its binding, the end of kube-scheduler's attempt, or a time limit.
//
// Does not handle HTTP (verbs.h). Threads: the runner's. Ownership: ledger, binder, clock and
// metrics outlive the extender. Cost: filter and prioritize are a pass over the nodes of the
// request.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/kube/events.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/holds.h"
#include "src/scheduler/metrics.h"
#include "src/scheduler/wait_reasons.h"
#include "src/scheduler/wire.h"

namespace tessera::scheduler {

class Extender {
 public:
  // Records an Event about a pod.
  using RecordEvent = std::function<void(const kube::PodObject& pod, kube::EventKind kind,
                                         std::string_view reason, const std::string& message)>;
  using FindPod = Holds::FindPod;

  Extender(ledger::ClusterLedger& ledger, Binder& binder, const Clock& clock,
           SchedulerMetrics& metrics, FindPod find_pod, RecordEvent record_event, HoldOptions hold);
  // Bindings that wait for the watch are answered with UNAVAILABLE.
  ~Extender();
  Extender(const Extender&) = delete;
  Extender& operator=(const Extender&) = delete;

  FilterResult Filter(const ExtenderArgs& args);
  // Answers like gpu-admission: only the best node, whose GPUs are held, and gpu-admission's
  // messages for the other nodes.
  FilterResult FilterToOne(const ExtenderArgs& args);
  // Scores by position: 10 for the best node only, 0 to 9 for the others by rank, ties equal.
  std::vector<int> Prioritize(const ExtenderArgs& args);
  // Scores CPU nodes above GPU nodes, like gpu-admission.
  std::vector<int> PrioritizeCpuNodes(const ExtenderArgs& args) const;
  // Returns the nodes on which the pod fits once these victims are evicted. Omits nodes where no
  // eviction helps, and nodes without victims: kube-scheduler would drop the whole answer.
  Victims Preempt(const PreemptionArgs& args);
  // Binds a pod that requests GPUs to a node that Filter named in this term of leading. For another
  // node, or after a change of the leader, fails with INVALID_ARGUMENT or FAILED_PRECONDITION, and
  // kube-scheduler filters again. Waits at most half a second for the watch to show the pod. Other
  // errors: see Binder::Bind.
  void Bind(const BindingArgs& args, Binder::Done done);

  const WaitReasons& wait_reasons() const { return wait_reasons_; }

  // The feed has received a change of the pod.
  void OnPod(const kube::PodObject& pod);
  void OnPodGone(const Uid& uid);
  // Releases GPUs held for too long. Call about once a second.
  void Tick();

 private:
  using Query = ledger::ClusterLedger::Query;
  struct WaitingBinding {
    BindingArgs args;
    Binder::Done done;
    MonotonicTime received_at;
  };
  struct LastEvent {
    std::string message;
    MonotonicTime recorded_at;
  };

  // Fails if no decision about the pod is allowed now.
  Result<Query> MakeQuery(const kube::PodObject& pod);
  void RecordQuotaRejection(const kube::PodObject& pod, const Query& query);
  // By position; null for unknown names.
  std::vector<const ledger::NodeEntry*> NodesOf(const ExtenderArgs& args) const;
  bool HasGpus(std::string_view node) const;
  // Scores by position; kUnfit if the pod does not fit or the node is unknown.
  std::vector<float> ScoresOf(const ExtenderArgs& args, const Query& query);

  ledger::ClusterLedger& ledger_;
  Binder& binder_;
  const Clock& clock_;
  SchedulerMetrics& metrics_;
  const FindPod find_pod_;
  const RecordEvent record_event_;
  Holds holds_;
  // Bindings of pods that kube-scheduler has observed and this replica's feed has not.
  std::map<Uid, WaitingBinding> waiting_bindings_;
  std::map<Uid, LastEvent> recorded_events_;
  WaitReasons wait_reasons_;
};

}  // namespace tessera::scheduler
