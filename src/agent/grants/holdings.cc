// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/holdings.h"

namespace tessera::agent {
namespace {

// Null for an unknown pod.
const PodInfo* PodOf(const Pods* pods, const ContainerRef& holder) {
  if (pods == nullptr) return nullptr;
  const auto pod = pods->pods().find(holder.pod_uid);
  return pod == pods->pods().end() ? nullptr : pod->second.get();
}

// The <id> of "containerd://<id>", which also names the cgroup.
std::string EngineIdOf(const PodInfo& pod, const ContainerRef& holder) {
  const auto id = pod.container_ids.find(holder.container);
  if (id == pod.container_ids.end()) return "";
  const size_t scheme = id->second.find("://");
  return scheme == std::string::npos ? id->second : id->second.substr(scheme + 3);
}

}  // namespace

Holdings HoldingsOf(const GrantLedger& ledger, const Pods* pods) {
  Holdings holdings{.containers = {}, .accounts = ledger.Accounts()};
  for (const auto& [key, entry] : ledger.entries()) {
    const PodInfo* pod = PodOf(pods, entry.holder);
    // The entry of an ended init container stays, because the container may start again. The next
    // container of the pod has the GPUs now.
    if (pod != nullptr && entry.phase == device::Phase::kInit &&
        pod->ended_containers.contains(entry.holder.container)) {
      continue;
    }
    HeldContainer held{.holder = entry.holder, .shares = entry.shares, .engine_id = ""};
    if (pod != nullptr) {
      held.engine_id = EngineIdOf(*pod, entry.holder);
      held.ended = pod->ended || pod->ended_containers.contains(entry.holder.container);
    }
    holdings.containers.push_back(std::move(held));
  }
  return holdings;
}

}  // namespace tessera::agent
