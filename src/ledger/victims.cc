// SPDX-License-Identifier: Apache-2.0
// Who must leave a node for a pod to get its GPUs there.
#include <algorithm>
#include <tuple>
#include <utility>

#include "src/ledger/ledger.h"

namespace tessera::ledger {
namespace {

// A pod that could be evicted, and what it would give back.
struct Holder {
  std::string uid;
  int32_t priority = 0;
  bool proposed = false;
  placement::Pod taken;
  placement::PodId place = 0;
};

}  // namespace

std::optional<std::vector<std::string>> ClusterLedger::Victims(
    const Question& question, std::string_view name, std::span<const std::string> proposed) {
  const auto known = nodes_.find(name);
  if (known == nodes_.end() || known->second.id == placement::kNoNode) return std::nullopt;
  const auto fits = [&] {
    return placement::WhyNot(cluster_->node(known->second.id), cluster_->demand(question.gpus_only))
        .ok();
  };
  std::vector<std::string> victims;  // whoever goes for other reasons than GPUs
  std::vector<Holder> holders;
  for (const std::string& uid : proposed) {
    const auto pod = pods_.find(uid);
    if (pod == pods_.end() || !pod->second.ask.request.asks_for_devices()) victims.push_back(uid);
  }
  for (const std::string& uid : PodsOn(known->first)) {
    const PodEntry& pod = pods_.find(uid)->second;
    if (!pod.place || pod.standing != Standing::kBound || !pod.ask.request.asks_for_devices()) {
      continue;
    }
    const bool is_proposed = std::find(proposed.begin(), proposed.end(), uid) != proposed.end();
    if (!is_proposed && pod.ask.priority >= question.ask.priority) continue;
    holders.push_back(
        {uid, pod.ask.priority, is_proposed, *cluster_->Find(*pod.place), *pod.place});
  }
  // The dearest come back first; among equals those that kube-scheduler would have spared.
  std::sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) {
    return std::tuple(-a.priority, a.proposed, std::string_view(a.uid)) <
           std::tuple(-b.priority, b.proposed, std::string_view(b.uid));
  });
  for (Holder& holder : holders) (void)cluster_->Remove(holder.place);
  const bool helps = fits();
  for (Holder& holder : holders) {
    holder.place =
        cluster_->Adopt(holder.taken.shape, holder.taken.node, holder.taken.pick).value();
    if (!helps || fits()) continue;
    (void)cluster_->Remove(holder.place);
    victims.push_back(holder.uid);
  }
  // Nothing has happened yet: all of them are as they were.
  for (const Holder& holder : holders) {
    const bool gone = std::find(victims.begin(), victims.end(), holder.uid) != victims.end();
    pods_.find(holder.uid)->second.place =
        gone ? cluster_->Adopt(holder.taken.shape, holder.taken.node, holder.taken.pick).value()
             : holder.place;
  }
  if (!helps || victims.empty()) return std::nullopt;
  return victims;
}

}  // namespace tessera::ledger
