// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/repair.h"

#include <utility>

#include "api/names.h"
#include "src/base/log.h"

namespace tessera::scheduler {
namespace {

kube::PodObject ObjectOf(const ledger::PodEntry& pod) {
  return {.meta = {.name = pod.ask.name, .ns = pod.ask.ns, .uid = pod.ask.uid}};
}

}  // namespace

Repair::Repair(const ledger::ClusterLedger& ledger, EvictionApi& api, const Clock& clock,
               SchedulerMetrics& metrics, Extender::Tell tell, RepairOptions options)
    : ledger_(ledger),
      api_(api),
      clock_(clock),
      metrics_(metrics),
      tell_(std::move(tell)),
      options_(options) {}

void Repair::Tick() {
  const MonotonicTime now = clock_.Now();
  for (auto& [uid, one] : cases_) one.current = false;
  for (const ledger::ClusterLedger::Overassignment& one : ledger_.Overassigned()) {
    const auto [found, is_new] = cases_.try_emplace(one.excess->ask.uid);
    Case& known = found->second;
    known.current = true;
    if (is_new) known.since = now;
    if (now - known.since < options_.settle) continue;
    if (!std::exchange(known.told, true)) Tell(one);
    if (!one.excess->controlled || evicting_ || now < next_eviction_ || now < known.next_try) {
      continue;
    }
    known.next_try = now + options_.retry;
    next_eviction_ = now + options_.pause;
    Evict(one);
  }
  std::erase_if(cases_, [](const auto& entry) { return !entry.second.current; });
}

void Repair::Tell(const ledger::ClusterLedger::Overassignment& one) {
  const std::string both =
      fmt::format("GPU {} of node {} is assigned to pod {} and to pod {}, which was bound later",
                  one.gpu, one.node, one.older->ask.Text(), one.excess->ask.Text());
  const std::string what =
      one.excess->controlled
          ? "the later one is evicted, so that its controller makes it anew"
          : "the later one has no controller and is not evicted: delete it, and make it anew";
  Log(Severity::kWarning, both + ": " + what);
  for (const ledger::PodEntry* pod : {one.older, one.excess}) {
    tell_(ObjectOf(*pod), kube::EventKind::kWarning, names::kReasonGpuOverassigned,
          both + ": " + what);
  }
}

void Repair::Evict(const ledger::ClusterLedger::Overassignment& one) {
  const std::string who = one.excess->ask.Text();
  evicting_ = true;
  eviction_ = api_.Evict(
      one.excess->ask.ns, one.excess->ask.name, one.excess->ask.uid,
      [this, who](const Status& status) {
        evicting_ = false;
        // It is gone, or another pod has its name: nothing is left to repair.
        const bool gone = status.code() == Code::kNotFound || status.code() == Code::kAborted;
        metrics_.repairs.Add(status.ok() || gone ? "evicted" : InfoOf(status.code()).name);
        if (status.ok() || gone) return;
        Log(Severity::kWarning, "cannot evict pod " + who + ", which was assigned a GPU of another",
            {{"why", status.message()}});
      });
}

}  // namespace tessera::scheduler
