// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/holdings.h"

namespace tessera::agent {

Holdings HoldingsOf(const GrantLedger& ledger, const Pods* pods) {
  Holdings holdings{.containers = {}, .accounts = ledger.Accounts()};
  for (const auto& [key, entry] : ledger.entries()) {
    const PodInfo* pod = pods == nullptr ? nullptr : pods->Find(entry.holder.pod_uid);
    // The entry of an ended init container stays, because the container may start again. The next
    // container of the pod has the GPUs now.
    if (pod != nullptr && entry.phase == device::Phase::kInit &&
        pod->ended_containers.contains(entry.holder.container)) {
      continue;
    }
    HeldContainer held{.holder = entry.holder, .shares = entry.shares, .container_id = ""};
    if (pod != nullptr) {
      held.container_id = pod->ContainerId(entry.holder.container);
      held.ended = pod->HasEnded(entry.holder.container);
    }
    holdings.containers.push_back(std::move(held));
  }
  return holdings;
}

}  // namespace tessera::agent
