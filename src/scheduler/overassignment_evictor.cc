// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/overassignment_evictor.h"

#include <utility>

#include "api/names.h"
#include "src/base/log.h"

namespace tessera::scheduler {
namespace {

kube::PodObject ObjectOf(const ledger::PodEntry& pod) {
  return {.meta = {.name = pod.request.name, .ns = pod.request.ns, .uid = pod.request.uid}};
}

}  // namespace

OverassignmentEvictor::OverassignmentEvictor(const ledger::ClusterLedger& ledger, EvictionApi& api,
                                             const Clock& clock, SchedulerMetrics& metrics,
                                             Extender::RecordEvent record_event)
    : ledger_(ledger),
      api_(api),
      clock_(clock),
      metrics_(metrics),
      record_event_(std::move(record_event)) {}

void OverassignmentEvictor::Tick() {
  const MonotonicTime now = clock_.Now();
  for (auto& [uid, known] : conflicts_) known.seen_in_tick = false;
  for (const ledger::ClusterLedger::Overassignment& conflict : ledger_.FindOverassignments()) {
    const auto [found, is_new] = conflicts_.try_emplace(conflict.excess->request.uid);
    PodConflict& known = found->second;
    known.seen_in_tick = true;
    if (is_new) known.since = now;
    if (now - known.since < kConflictGrace) continue;
    if (!std::exchange(known.event_recorded, true)) RecordEvent(conflict);
    if (!conflict.excess->controlled || evicting_ || now < next_eviction_ || now < known.next_try) {
      continue;
    }
    known.next_try = now + kRetryInterval;
    next_eviction_ = now + kEvictionInterval;
    Evict(conflict);
  }
  std::erase_if(conflicts_, [](const auto& entry) { return !entry.second.seen_in_tick; });
}

void OverassignmentEvictor::RecordEvent(const ledger::ClusterLedger::Overassignment& conflict) {
  const std::string conflict_text = fmt::format(
      "GPU {} of node {} is assigned to pod {} and to pod {}, which was bound later", conflict.gpu,
      conflict.node, conflict.older->request.Text(), conflict.excess->request.Text());
  const std::string remedy =
      conflict.excess->controlled
          ? "the later pod is evicted, so that its controller creates it again"
          : "the later pod has no controller and is not evicted: delete and create it again";
  Log(Severity::kWarning, conflict_text + ": " + remedy);
  for (const ledger::PodEntry* pod : {conflict.older, conflict.excess}) {
    record_event_(ObjectOf(*pod), kube::EventKind::kWarning, names::kReasonGpuOverassigned,
                  conflict_text + ": " + remedy);
  }
}

void OverassignmentEvictor::Evict(const ledger::ClusterLedger::Overassignment& conflict) {
  const std::string who = conflict.excess->request.Text();
  evicting_ = true;
  eviction_ = api_.Evict(
      conflict.excess->request.ns, conflict.excess->request.name, conflict.excess->request.uid,
      [this, who](const Status& status) {
        evicting_ = false;
        // The pod was deleted, or another pod has its name: nothing is left to repair.
        const bool gone = status.code() == Code::kNotFound || status.code() == Code::kAborted;
        metrics_.overassignment_evictions.Add(status.ok() || gone ? "evicted"
                                                                  : InfoOf(status.code()).name);
        if (status.ok() || gone) return;
        Log(Severity::kWarning,
            "cannot evict pod " + who + ", which was assigned a GPU of another pod",
            {{"why", status.message()}});
      });
}

kube::Operation KubeEvictionApi::Evict(const std::string& ns, const std::string& name,
                                       const Uid& uid, std::function<void(const Status&)> on_done) {
  return client_.Evict(
      ns, name, {.uid = uid},
      [on_done = std::move(on_done)](const Result<Json>& answer) { on_done(answer.status()); },
      before_send_);
}

}  // namespace tessera::scheduler
