// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/ended_pods.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "src/base/log.h"

namespace tessera::agent {
namespace {

// Longest pause between checks of remaining processes.
constexpr Duration kLongestReleasePause = std::chrono::seconds(2);

// Whether the kubelet lists the IDs of one of the entry's tokens for this pod, or for any pod while
// the holder is unknown. An entry without tokens comes from another device plugin, so any pod with
// the holder's name is accepted.
bool ListedWithTokens(const PodDevices& pods, const GrantLedger::Entry& entry) {
  if (entry.claims.empty()) {
    return pods.Lists(entry.holder.pod_namespace, entry.holder.pod_name);
  }
  return std::ranges::any_of(pods.held_devices, [&](const HeldDevices& held) {
    if (entry.holder.owner_known() && (held.pod_namespace != entry.holder.pod_namespace ||
                                       held.pod_name != entry.holder.pod_name)) {
      return false;
    }
    return std::ranges::any_of(entry.claims, [&](const Claim& claim) {
      return claim.resource == held.resource && !claim.ids.empty() &&
             std::ranges::count(held.ids, claim.ids[0]) != 0;
    });
  });
}

bool IsListed(const PodDevices& pods, const GrantLedger::Entry& entry) {
  return entry.holder.owner_known() ? pods.Lists(entry.holder.pod_namespace, entry.holder.pod_name)
                                    : ListedWithTokens(pods, entry);
}

}  // namespace

std::shared_ptr<const device::NodeInventory> Withhold(
    std::shared_ptr<const device::NodeInventory> inventory, const WithheldGpus& withheld) {
  if (inventory == nullptr || withheld.empty()) return inventory;
  auto changed = std::make_shared<device::NodeInventory>(*inventory);
  for (device::Gpu& gpu : changed->gpus) {
    const auto found = withheld.find(gpu.uuid);
    if (found == withheld.end() || !gpu.health.ok()) continue;
    gpu.health = {device::Health::State::kWithheld, found->second};
  }
  return changed;
}

EndedPods::EndedPods(TaskRunner* runner, GrantLedger* ledger, PodResources* kubelet,
                     const Pods* pods, ReleaseOptions options, GrantMetrics* metrics,
                     std::function<void()> on_released)
    : runner_(runner),
      ledger_(ledger),
      kubelet_(kubelet),
      pods_(pods),
      options_(std::move(options)),
      metrics_(metrics),
      on_released_(std::move(on_released)) {
  SchedulePrune();
}

void EndedPods::ListKubeletPods(PodsDone done) {
  waiting_callbacks_.push_back(std::move(done));
  if (!listing_) StartList();
}

void EndedPods::StartList() {
  listing_ = true;
  auto callbacks = std::make_shared<std::vector<PodsDone>>(std::move(waiting_callbacks_));
  waiting_callbacks_.clear();
  kubelet_->List([this, callbacks, weak = weak_.Get()](const Result<PodDevices>& pods) {
    if (!weak) return;
    listing_ = false;
    for (const PodsDone& done : *callbacks) done(pods);
    if (!waiting_callbacks_.empty() && !listing_) StartList();
  });
}

void EndedPods::Resolve(std::vector<GrantLedger::Conflict> conflicts, ContainerRef requester,
                        Resolved done) {
  const MonotonicTime list_started = runner_->clock().Now();
  ListKubeletPods([this, list_started, conflicts = std::move(conflicts),
                   requester = std::move(requester),
                   done = std::move(done)](const Result<PodDevices>& kubelet_pods) {
    const Duration list_duration = runner_->clock().Now() - list_started;
    // Pods end together, so one list of the kubelet's pods serves all of them.
    bool any_still_listed = false;
    Keys gone = EndedAndUnlisted(kubelet_pods, &any_still_listed);
    const Status list_is_current = CheckListIsCurrent(conflicts, requester, kubelet_pods);
    for (const GrantLedger::Conflict& conflict : conflicts) {
      const auto found = ledger_->entries().find(conflict.key);
      if (!list_is_current.ok() || found == ledger_->entries().end()) continue;
      if (IsGone(found->second, *kubelet_pods, requester)) gone.insert(conflict.key);
    }
    ReleaseIfProcessesEnded(
        std::move(gone), [this, conflicts, done, list_is_current, list_duration] {
          const bool any_still_held = std::ranges::any_of(conflicts, [&](const auto& conflict) {
            return ledger_->entries().contains(conflict.key);
          });
          done(any_still_held ? list_is_current : Status::Ok(), list_duration);
        });
  });
}

Status EndedPods::CheckListIsCurrent(const std::vector<GrantLedger::Conflict>& conflicts,
                                     const ContainerRef& requester,
                                     const Result<PodDevices>& kubelet_pods) const {
  if (conflicts.empty()) return Status::Ok();
  const GrantLedger::Conflict& first = conflicts.front();
  const std::string conflict_text = first.uuid + " is still held by container " +
                                    first.holder.container + " of pod " + first.holder.PodText();
  if (!kubelet_pods.ok()) {
    return Error(Code::kUnavailable, "{}, and the kubelet did not list its pods: {}", conflict_text,
                 kubelet_pods.status().message());
  }
  // A kubelet that has just started lists no pod. The requesting pod exists, so a list without it
  // is not current.
  if (requester.owner_known() ? !kubelet_pods->Lists(requester.pod_namespace, requester.pod_name)
                              : kubelet_pods->pods.empty()) {
    return Error(Code::kUnavailable, "{}, and the kubelet does not list pod {} yet", conflict_text,
                 requester.PodText());
  }
  return Status::Ok();
}

bool EndedPods::IsGone(const GrantLedger::Entry& entry, const PodDevices& kubelet_pods,
                       const ContainerRef& requester) const {
  // A holder with the name of the requesting pod is its dead predecessor.
  const bool is_predecessor =
      requester.owner_known() && entry.holder.PodText() == requester.PodText();
  if (pods_ == nullptr) return is_predecessor || !ListedWithTokens(kubelet_pods, entry);
  if (RunsPerApiServer(entry.holder)) return false;
  return is_predecessor || !IsListed(kubelet_pods, entry) || HasNamesake(entry.holder);
}

std::optional<std::string> EndedPods::ReasonStillHeld(
    const std::vector<GrantLedger::Conflict>& conflicts) const {
  for (const GrantLedger::Conflict& conflict : conflicts) {
    const auto leaving = leaving_containers_.find(conflict.key);
    if (leaving == leaving_containers_.end()) continue;
    return fmt::format("{} is not free yet: pod {} (uid {}) is gone, but {}", conflict.uuid,
                       conflict.holder.PodText(), conflict.holder.pod_uid, leaving->second.remains);
  }
  return std::nullopt;
}

bool EndedPods::EndedPerApiServer(const ContainerRef& holder) const {
  if (pods_ == nullptr || !pods_->synced() || !holder.owner_known()) return false;
  const PodInfo* pod = pods_->Find(holder.pod_uid);
  return pod == nullptr || pod->ended;
}

// Uses the last known state while the API server is unreachable.
bool EndedPods::RunsPerApiServer(const ContainerRef& holder) const {
  const PodInfo* pod = pods_ != nullptr ? pods_->Find(holder.pod_uid) : nullptr;
  return pod != nullptr && !pod->ended;
}

// The kubelet lists pods by name. So a pod in its list may be another pod with the name of an ended
// pod.
bool EndedPods::HasNamesake(const ContainerRef& holder) const {
  return std::ranges::any_of(pods_->pods(), [&](const auto& pod) {
    return pod.first != holder.pod_uid && pod.second->ns == holder.pod_namespace &&
           pod.second->name == holder.pod_name;
  });
}

void EndedPods::ScheduleCheck() {
  pause_ = kFirstPause;
  CheckAfter(kCheckDelay);
}

void EndedPods::CheckAfter(Duration pause) {
  if (check_planned_) return;
  check_planned_ = true;
  runner_->PostDelayed(pause, [this, weak = weak_.Get()] {
    if (!weak) return;
    check_planned_ = false;
    Check();
  });
}

void EndedPods::Check() {
  // The mirror pod of a static pod may be deleted and created again, so a pod that was leaving can
  // run again.
  std::erase_if(leaving_containers_, [&](const auto& pair) {
    const auto entry = ledger_->entries().find(pair.first);
    return entry == ledger_->entries().end() || RunsPerApiServer(entry->second.holder);
  });
  PublishWithheld();
  const bool any_ended = std::ranges::any_of(ledger_->entries(), [&](const auto& entry) {
    return EndedPerApiServer(entry.second.holder);
  });
  if (leaving_containers_.empty() && !any_ended) return;
  ListKubeletPods([this](const Result<PodDevices>& kubelet_pods) {
    bool any_still_listed = false;
    Keys gone = EndedAndUnlisted(kubelet_pods, &any_still_listed);
    // A deleted pod never comes back; only its processes are checked again.
    for (const auto& [key, leaving] : leaving_containers_) gone.insert(key);
    ReleaseIfProcessesEnded(std::move(gone), [this, any_still_listed] {
      if (!any_still_listed && leaving_containers_.empty()) return;
      CheckAfter(pause_);
      pause_ = std::min(
          2 * pause_, Duration(leaving_containers_.empty() ? kLongestPause : kLongestReleasePause));
    });
  });
}

EndedPods::Keys EndedPods::EndedAndUnlisted(const Result<PodDevices>& kubelet_pods,
                                            bool* any_still_listed) const {
  Keys gone;
  for (const auto& [key, entry] : ledger_->entries()) {
    if (!EndedPerApiServer(entry.holder)) continue;
    const bool still_listed =
        !kubelet_pods.ok() || (IsListed(*kubelet_pods, entry) && !HasNamesake(entry.holder));
    *any_still_listed |= still_listed;
    if (!still_listed) gone.insert(key);
  }
  return gone;
}

void EndedPods::ReleaseIfProcessesEnded(Keys gone, std::function<void()> done) {
  if (gone.empty()) return done();
  if (options_.processes == nullptr) {
    ReleaseOrKeep(gone, {});
    return done();
  }
  options_.processes->Read([this, gone = std::move(gone), done = std::move(done),
                            weak = weak_.Get()](const ProcessSnapshot& snapshot) {
    if (!weak) return;
    ReleaseOrKeep(gone, snapshot);
    done();
  });
}

void EndedPods::ReleaseOrKeep(const Keys& gone, const ProcessSnapshot& snapshot) {
  bool any_released = false;
  for (const GrantLedger::Key& key : gone) {
    const auto found = ledger_->entries().find(key);
    if (found == ledger_->entries().end()) continue;
    const GrantLedger::Entry& entry = found->second;
    std::string remains = snapshot.status.ok()
                              ? snapshot.DescribeRemaining(entry.holder.pod_uid, entry.shares)
                              : "its processes are unknown (" + snapshot.status.message() + ")";
    if (remains.empty()) {
      if (Release(key)) {
        any_released = true;
        continue;
      }
      remains = "the journal of grants could not be written";
    }
    RecordRemaining(key, entry, std::move(remains));
  }
  std::erase_if(leaving_containers_,
                [&](const auto& pair) { return !ledger_->entries().contains(pair.first); });
  PublishWithheld();
  if (!leaving_containers_.empty()) CheckAfter(pause_);
  if (any_released) on_released_();
}

bool EndedPods::Release(const GrantLedger::Key& key) {
  const ContainerRef holder = ledger_->entries().at(key).holder;
  const Status status = ledger_->Release(key);
  if (!status.ok()) Log(Severity::kError, status.message());
  const auto leaving = leaving_containers_.find(key);
  if (status.ok() && leaving != leaving_containers_.end()) {
    const auto waited = runner_->clock().Now() - leaving->second.since;
    Log(Severity::kInfo, "released the GPUs of a pod whose processes have left",
        {{"pod", holder.PodText()},
         {"uid", holder.pod_uid},
         {"waited_ms", std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()}});
  }
  return status.ok();
}

void EndedPods::RecordRemaining(const GrantLedger::Key& key, const GrantLedger::Entry& entry,
                                std::string remains) {
  const MonotonicTime now = runner_->clock().Now();
  const auto [found, is_new] =
      leaving_containers_.try_emplace(key, LeavingContainer{.since = now, .remains = {}});
  LeavingContainer& leaving = found->second;
  leaving.remains = std::move(remains);
  if (is_new) {
    Log(Severity::kInfo, "waiting before the GPUs of a deleted pod are released",
        {{"pod", entry.holder.PodText()},
         {"uid", entry.holder.pod_uid},
         {"remains", leaving.remains}});
  }
  if (leaving.withheld || now - leaving.since < options_.timeout) return;
  leaving.withheld = true;
  metrics_->release_timeouts.Add();
  Log(Severity::kWarning, "withheld the GPUs of a deleted pod, which could not be released in time",
      {{"pod", entry.holder.PodText()},
       {"uid", entry.holder.pod_uid},
       {"remains", leaving.remains}});
}

void EndedPods::PublishWithheld() {
  WithheldGpus withheld;
  for (const auto& [key, leaving] : leaving_containers_) {
    if (!leaving.withheld) continue;
    const GrantLedger::Entry& entry = ledger_->entries().at(key);
    for (const device::DeviceShare& share : entry.shares) {
      withheld.emplace(share.uuid, fmt::format("withheld: pod {} is gone, but {}",
                                               entry.holder.PodText(), leaving.remains));
    }
  }
  metrics_->leaving_containers = leaving_containers_.size();
  if (withheld == withheld_) return;
  withheld_ = std::move(withheld);
  if (options_.on_withheld) options_.on_withheld(withheld_);
}

void EndedPods::SchedulePrune() {
  if (prune_planned_ || (ledger_->entries().empty() && ledger_->spent_count() == 0)) return;
  prune_planned_ = true;
  runner_->PostDelayed(kPruneInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    prune_planned_ = false;
    const Status status = ledger_->Tidy(runner_->clock().WallNow());
    if (!status.ok()) Log(Severity::kError, status.message());
    if (ledger_->entries().empty()) return SchedulePrune();
    ListKubeletPods([this](const Result<PodDevices>& kubelet_pods) { Prune(kubelet_pods); });
  });
}

void EndedPods::Prune(const Result<PodDevices>& kubelet_pods) {
  Keys missing, gone;
  if (kubelet_pods.ok()) {
    for (const auto& [key, entry] : ledger_->entries()) {
      if (!IsListed(*kubelet_pods, entry) && !RunsPerApiServer(entry.holder)) missing.insert(key);
    }
    // Two lists in a row must lack a pod, because a kubelet that has just started lists none.
    std::set_intersection(missing.begin(), missing.end(), unlisted_at_last_prune_.begin(),
                          unlisted_at_last_prune_.end(), std::inserter(gone, gone.end()));
  }
  unlisted_at_last_prune_ = std::move(missing);
  ReleaseIfProcessesEnded(std::move(gone), [this] { SchedulePrune(); });
}

}  // namespace tessera::agent
