// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/unredeemed.h"

#include <algorithm>
#include <set>

#include "src/agent/grants/token_request.h"

namespace tessera::agent {
namespace {

bool IsOurs(const std::string& resource) {
  const auto& served = ServedResources();
  return std::find(served.begin(), served.end(), resource) != served.end();
}

// Null for an unknown pod.
const PodInfo* FindByName(const Pods& pods, const HeldDevices& held) {
  for (const auto& [uid, pod] : pods.pods()) {
    if (!pod->ended && pod->ns == held.pod_namespace && pod->name == held.pod_name) {
      return pod.get();
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> UnredeemedContainers(const PodDevices& listed, const Pods& pods,
                                              const GrantLedger& ledger, WallTime since) {
  std::set<std::string> unredeemed;
  for (const HeldDevices& held : listed.held) {
    if (!IsOurs(held.resource) || held.ids.empty()) continue;
    const PodInfo* pod = FindByName(pods, held);
    const bool runs = pod != nullptr && pod->container_ids.contains(held.container) &&
                      !pod->ended_containers.contains(held.container);
    if (!runs || pod->created < since) continue;
    if (ledger.Find({pod->uid, pod->ns, pod->name, held.container}) != nullptr) continue;
    unredeemed.insert(pod->Text() + "/" + held.container);
  }
  return {unredeemed.begin(), unredeemed.end()};
}

}  // namespace tessera::agent
