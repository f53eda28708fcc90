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

const kube::PodObject* Holds::FindWaiting(const kube::PodObject& pod) const {
  const kube::PodObject* received = find_pod_(pod.meta.ns + "/" + pod.meta.name);
  const bool waits = received != nullptr && received->meta.uid == pod.meta.uid &&
                     received->node_name.empty() && !received->meta.deleting && !received->ended();
  return waits ? received : nullptr;
}

void Holds::RecordFitting(const kube::PodObject& pod, std::vector<bool> fitting_nodes) {
  if (std::ranges::find(fitting_nodes, true) == fitting_nodes.end())
    return EndAttempt(pod.meta.uid);
  if (attempts_.size() >= kMaxAttempts && !attempts_.contains(pod.meta.uid)) {
    const auto oldest = std::ranges::min_element(
        attempts_, {}, [](const Attempts::value_type& entry) { return entry.second.filtered_at; });
    ledger_.DropAssumption(oldest->first);
    attempts_.erase(oldest);
  }
  attempts_.insert_or_assign(
      pod.meta.uid,
      SchedulingAttempt{.filtered_at = clock_.Now(), .fitting_nodes = std::move(fitting_nodes)});
}

bool Holds::HasOpenAttempt(const Uid& uid, std::string_view name) const {
  const auto found = attempts_.find(uid);
  const ledger::NodeEntry* node = ledger_.FindNode(name);
  return found != attempts_.end() && node != nullptr &&
         node->id < found->second.fitting_nodes.size() && found->second.fitting_nodes[node->id];
}

Duration Holds::RemainingHoldTime(const SchedulingAttempt& attempt) const {
  const bool failure_is_visible =
      attempt.failed_hash_in_request == 0 || !attempt.nominated_node.empty();
  return (failure_is_visible ? options_.limit : options_.limit_if_failure_invisible) -
         (clock_.Now() - attempt.filtered_at);
}

void Holds::Hold(const kube::PodObject& pod, const Query& query, std::string_view node) {
  const auto found = attempts_.find(pod.meta.uid);
  if (found == attempts_.end()) return;
  SchedulingAttempt& attempt = found->second;
  attempt.node = node;
  attempt.failed_hash_in_request = pod.failed_attempt_hash;
  const kube::PodObject* received = FindWaiting(pod);
  attempt.received = received != nullptr;
  if (!attempt.received) return;
  attempt.failed_hash_in_watch = received->failed_attempt_hash;
  attempt.nominated_node = received->nominated_node;
  // Assume fails only if the quota is exceeded. The bind call then reports the error.
  (void)ledger_.Assume(query, node, RemainingHoldTime(attempt));
}

void Holds::AssumeGpus(const kube::PodObject& pod, const SchedulingAttempt& attempt) {
  const Result<Query> query = ledger_.MakeQuery(pod);
  if (query.ok()) (void)ledger_.Assume(*query, attempt.node, RemainingHoldTime(attempt));
}

void Holds::EndAttempt(const Uid& uid) {
  if (const auto found = attempts_.find(uid); found != attempts_.end()) attempts_.erase(found);
}

void Holds::OnPod(const kube::PodObject& pod) {
  const auto found = attempts_.find(pod.meta.uid);
  if (found == attempts_.end()) return;
  SchedulingAttempt& attempt = found->second;
  if (!pod.node_name.empty() || pod.ended()) {
    attempts_.erase(found);
    return;
  }
  if (attempt.node.empty() || !binder_.UnsettledReason(pod.meta.uid).empty()) return;
  if (!attempt.received) {
    attempt.received = true;
    attempt.failed_hash_in_watch = pod.failed_attempt_hash;
    attempt.nominated_node = pod.nominated_node;
    return AssumeGpus(pod, attempt);
  }
  const bool failed = pod.failed_attempt_hash != 0 &&
                      pod.failed_attempt_hash != attempt.failed_hash_in_request &&
                      pod.failed_attempt_hash != attempt.failed_hash_in_watch;
  const bool cleared = !attempt.nominated_node.empty() && pod.nominated_node.empty();
  if (failed || cleared || pod.meta.deleting) {
    ledger_.DropAssumption(pod.meta.uid);
    attempts_.erase(found);
    return;
  }
  if (pod.nominated_node == attempt.nominated_node) return;
  attempt.nominated_node = pod.nominated_node;
  if (attempt.nominated_node == attempt.node ||
      !HasOpenAttempt(pod.meta.uid, attempt.nominated_node)) {
    return ledger_.ExtendAssumption(pod.meta.uid, RemainingHoldTime(attempt));
  }
  // kube-scheduler chose a node other than the best node.
  attempt.node = attempt.nominated_node;
  AssumeGpus(pod, attempt);
}

void Holds::Tick() {
  const MonotonicTime now = clock_.Now();
  std::erase_if(attempts_,
                [&](const auto& entry) { return now - entry.second.filtered_at > options_.limit; });
}

}  // namespace tessera::scheduler
