// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/holds.h"

#include <algorithm>
#include <utility>

namespace tessera::scheduler {

Holds::Holds(ledger::ClusterLedger& ledger, const Binder& binder, const Clock& clock,
             FindPod find_pod, HoldOptions options)
    : ledger_(ledger),
      binder_(binder),
      clock_(clock),
      find_pod_(std::move(find_pod)),
      options_(options) {}

const kube::PodObject* Holds::Waiting(const kube::PodObject& pod) const {
  const kube::PodObject* shown = find_pod_(pod.meta.ns + "/" + pod.meta.name);
  const bool waits = shown != nullptr && shown->meta.uid == pod.meta.uid &&
                     shown->node_name.empty() && !shown->meta.deleting && !shown->ended();
  return waits ? shown : nullptr;
}

void Holds::Name(const kube::PodObject& pod, std::vector<bool> fits) {
  if (std::ranges::find(fits, true) == fits.end()) return Drop(pod.meta.uid);
  if (pods_.size() >= kMostPods && !pods_.contains(pod.meta.uid)) {
    const auto oldest = std::ranges::min_element(
        pods_, {}, [](const Pods::value_type& entry) { return entry.second.named; });
    ledger_.Forget(oldest->first);
    pods_.erase(oldest);
  }
  pods_.insert_or_assign(pod.meta.uid, Pod{.named = clock_.Now(), .fits = std::move(fits)});
}

bool Holds::Named(const Uid& uid, std::string_view name) const {
  const auto found = pods_.find(uid);
  const ledger::NodeEntry* node = ledger_.FindNode(name);
  return found != pods_.end() && node != nullptr && node->id < found->second.fits.size() &&
         found->second.fits[node->id];
}

Duration Holds::TimeFor(const Pod& held) const {
  const bool failure_is_seen = held.failure == 0 || !held.nominated.empty();
  return (failure_is_seen ? options_.limit : options_.unproven) - (clock_.Now() - held.named);
}

void Holds::Hold(const kube::PodObject& pod, const Question& question, std::string_view node) {
  const auto found = pods_.find(pod.meta.uid);
  if (found == pods_.end()) return;
  Pod& held = found->second;
  held.node = node;
  held.failure = pod.failed_attempt;
  const kube::PodObject* shown = Waiting(pod);
  held.shown = shown != nullptr;
  if (!held.shown) return;
  held.shown_failure = shown->failed_attempt;
  held.nominated = shown->nominated_node;
  // It may fail by the quota alone, and then the binding says so.
  (void)ledger_.Assume(question, node, TimeFor(held));
}

void Holds::Take(const kube::PodObject& pod, const Pod& held) {
  const Result<Question> question = ledger_.Ask(pod);
  if (question.ok()) (void)ledger_.Assume(*question, held.node, TimeFor(held));
}

void Holds::Drop(const Uid& uid) {
  if (const auto found = pods_.find(uid); found != pods_.end()) pods_.erase(found);
}

void Holds::OnPod(const kube::PodObject& pod) {
  const auto found = pods_.find(pod.meta.uid);
  if (found == pods_.end()) return;
  Pod& held = found->second;
  if (!pod.node_name.empty() || pod.ended()) {
    pods_.erase(found);
    return;
  }
  if (held.node.empty() || !binder_.Unsettled(pod.meta.uid).empty()) return;
  if (!held.shown) {
    held.shown = true;
    held.shown_failure = pod.failed_attempt;
    held.nominated = pod.nominated_node;
    return Take(pod, held);
  }
  const bool failed = pod.failed_attempt != 0 && pod.failed_attempt != held.failure &&
                      pod.failed_attempt != held.shown_failure;
  const bool cleared = !held.nominated.empty() && pod.nominated_node.empty();
  if (failed || cleared || pod.meta.deleting) {
    ledger_.Forget(pod.meta.uid);
    pods_.erase(found);
    return;
  }
  if (pod.nominated_node == held.nominated) return;
  held.nominated = pod.nominated_node;
  if (held.nominated == held.node || !Named(pod.meta.uid, held.nominated)) {
    return ledger_.Extend(pod.meta.uid, TimeFor(held));
  }
  // Other scores than ours decided.
  held.node = held.nominated;
  Take(pod, held);
}

void Holds::Tick() {
  const MonotonicTime now = clock_.Now();
  std::erase_if(pods_,
                [&](const auto& entry) { return now - entry.second.named > options_.limit; });
}

}  // namespace tessera::scheduler
