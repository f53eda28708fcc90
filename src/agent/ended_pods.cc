// SPDX-License-Identifier: Apache-2.0
#include "src/agent/ended_pods.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"

namespace tessera::agent {
namespace {

// Whether the kubelet says that this pod has what one of the entry's tokens names; any pod, where
// nobody has told yet whose they are. One without tokens was given its GPUs by another device
// plugin: whoever is there has them.
bool Holds(const PodDevices& pods, const GrantLedger::Entry& entry) {
  if (entry.claims.empty()) {
    return pods.Lists(entry.holder.pod_namespace, entry.holder.pod_name);
  }
  return std::any_of(pods.held.begin(), pods.held.end(), [&](const HeldDevices& held) {
    if (entry.holder.named() && (held.pod_namespace != entry.holder.pod_namespace ||
                                 held.pod_name != entry.holder.pod_name)) {
      return false;
    }
    return std::any_of(entry.claims.begin(), entry.claims.end(), [&](const Claim& claim) {
      return claim.resource == held.resource && !claim.ids.empty() &&
             std::find(held.ids.begin(), held.ids.end(), claim.ids[0]) != held.ids.end();
    });
  });
}

bool IsListed(const PodDevices& pods, const GrantLedger::Entry& entry) {
  return entry.holder.named() ? pods.Lists(entry.holder.pod_namespace, entry.holder.pod_name)
                              : Holds(pods, entry);
}

}  // namespace

EndedPods::EndedPods(TaskRunner* runner, GrantLedger* ledger, PodResources* kubelet,
                     const Pods* pods, std::function<void()> released)
    : runner_(runner),
      ledger_(ledger),
      kubelet_(kubelet),
      pods_(pods),
      released_(std::move(released)) {
  PruneLater();
}

void EndedPods::List(PodsDone done) {
  waiting_.push_back(std::move(done));
  if (!listing_) StartList();
}

void EndedPods::StartList() {
  listing_ = true;
  auto served = std::make_shared<std::vector<PodsDone>>(std::move(waiting_));
  waiting_.clear();
  kubelet_->List(
      [this, served, weak = std::weak_ptr<EndedPods*>(self_)](const Result<PodDevices>& pods) {
        if (weak.expired()) return;
        listing_ = false;
        for (const PodsDone& done : *served) done(pods);
        if (!waiting_.empty() && !listing_) StartList();
      });
}

Status EndedPods::Resolve(const std::vector<GrantLedger::Conflict>& conflicts,
                          const ContainerRef& who, const Result<PodDevices>& listed) {
  // Pods end together, and each question would else ask the kubelet about its own GPU.
  (void)ReleaseEnded(listed);
  for (const GrantLedger::Conflict& conflict : conflicts) {
    const auto found = ledger_->entries().find(conflict.key);
    if (found == ledger_->entries().end()) continue;
    const std::string held = conflict.uuid + " is still held by container " +
                             conflict.holder.container + " of pod " + conflict.holder.PodText();
    if (!listed.ok()) {
      return Error(Code::kUnavailable,
                   "{}, and the kubelet could not be asked whether it lives: {}", held,
                   listed.status().message());
    }
    // A kubelet that has just started lists nobody. Who asks is certainly there.
    if (who.named() ? !listed->Lists(who.pod_namespace, who.pod_name) : listed->pods.empty()) {
      return Error(Code::kUnavailable, "{}, and the kubelet does not list pod {} yet", held,
                   who.PodText());
    }
    // A pod of the same name as the one that asks is its dead predecessor.
    const bool same_name = who.named() && conflict.holder.PodText() == who.PodText();
    if (!same_name && Holds(*listed, found->second)) continue;
    RETURN_IF_ERROR(ledger_->Release(conflict.key));
    Log(Severity::kInfo, "released the GPUs of a pod that is gone",
        {{"pod", conflict.holder.PodText()}, {"uid", conflict.holder.pod_uid}});
  }
  released_();
  return Status::Ok();
}

bool EndedPods::EndedByApi(const ContainerRef& holder) const {
  if (pods_ == nullptr || !pods_->synced() || !holder.named()) return false;
  const auto found = pods_->pods().find(holder.pod_uid);
  return found == pods_->pods().end() || found->second->ended;
}

// As far as is known, also while the API server is away.
bool EndedPods::LivesByApi(const ContainerRef& holder) const {
  if (pods_ == nullptr) return false;
  const auto found = pods_->pods().find(holder.pod_uid);
  return found != pods_->pods().end() && !found->second->ended;
}

// The kubelet's list has names only.
bool EndedPods::NamesakeKnown(const ContainerRef& holder) const {
  return std::any_of(pods_->pods().begin(), pods_->pods().end(), [&](const auto& pod) {
    return pod.first != holder.pod_uid && pod.second->ns == holder.pod_namespace &&
           pod.second->name == holder.pod_name;
  });
}

void EndedPods::LookSoon() {
  pause_ = kFirstPause;
  LookAfter(kBurst);
}

void EndedPods::LookAfter(Duration pause) {
  if (look_planned_) return;
  look_planned_ = true;
  runner_->PostDelayed(pause, [this, weak = std::weak_ptr<EndedPods*>(self_)] {
    if (weak.expired()) return;
    look_planned_ = false;
    Look();
  });
}

void EndedPods::Look() {
  const auto& entries = ledger_->entries();
  if (std::none_of(entries.begin(), entries.end(),
                   [&](const auto& entry) { return EndedByApi(entry.second.holder); })) {
    return;
  }
  List([this](const Result<PodDevices>& listed) {
    if (ReleaseEnded(listed)) return;
    LookAfter(pause_);
    pause_ = std::min(2 * pause_, Duration(kLongestPause));
  });
}

bool EndedPods::ReleaseEnded(const Result<PodDevices>& listed) {
  bool left = false;
  std::vector<GrantLedger::Key> gone;
  for (const auto& [key, entry] : ledger_->entries()) {
    if (!EndedByApi(entry.holder)) continue;
    const bool there = !listed.ok() || (IsListed(*listed, entry) && !NamesakeKnown(entry.holder));
    left |= there;
    if (!there) gone.push_back(key);
  }
  for (const GrantLedger::Key& key : gone) Release(key);
  if (!gone.empty()) released_();
  return !left;
}

void EndedPods::Release(const GrantLedger::Key& key) {
  const Status status = ledger_->Release(key);
  if (!status.ok()) Log(Severity::kError, status.message());
}

void EndedPods::PruneLater() {
  if (prune_planned_ || (ledger_->entries().empty() && ledger_->spent() == 0)) return;
  prune_planned_ = true;
  runner_->PostDelayed(kPruneInterval, [this, weak = std::weak_ptr<EndedPods*>(self_)] {
    if (weak.expired()) return;
    prune_planned_ = false;
    const Status tidied = ledger_->Tidy(runner_->clock().WallNow());
    if (!tidied.ok()) Log(Severity::kError, tidied.message());
    if (ledger_->entries().empty()) return;
    List([this](const Result<PodDevices>& listed) { Prune(listed); });
  });
}

void EndedPods::Prune(const Result<PodDevices>& listed) {
  std::set<GrantLedger::Key> missing;
  bool released = false;
  if (listed.ok()) {
    for (const auto& [key, entry] : ledger_->entries()) {
      if (!IsListed(*listed, entry) && !LivesByApi(entry.holder)) missing.insert(key);
    }
    // Twice in a row: a kubelet that has just started lists nobody.
    for (const GrantLedger::Key& key : missing) {
      if (missing_.count(key) == 0) continue;
      Release(key);
      released = true;
    }
  }
  missing_ = std::move(missing);
  if (released) released_();
  PruneLater();
}

}  // namespace tessera::agent
