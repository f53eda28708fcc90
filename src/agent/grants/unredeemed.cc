// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/unredeemed.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "src/agent/grants/token_request.h"

namespace tessera::agent {

std::vector<std::string> UnredeemedContainers(const PodDevices& kubelet_pods, const Pods& pods,
                                              const GrantLedger& ledger, WallTime since) {
  std::set<std::string> unredeemed;
  for (const HeldDevices& held : kubelet_pods.held_devices) {
    if (std::ranges::count(kServedResources, held.resource) == 0 || held.ids.empty()) continue;
    const PodInfo* pod = pods.FindByName(held.pod_namespace, held.pod_name);
    const bool runs = pod != nullptr && pod->container_ids.contains(held.container) &&
                      !pod->ended_containers.contains(held.container);
    if (!runs || pod->created < since) continue;
    if (ledger.Find({pod->uid, pod->ns, pod->name, held.container}) != nullptr) continue;
    unredeemed.insert(pod->Text() + "/" + held.container);
  }
  return {unredeemed.begin(), unredeemed.end()};
}

UnredeemedWatch::UnredeemedWatch(TaskRunner* runner, EndedPods* ended_pods, const Pods* pods,
                                 const GrantLedger* ledger, WallTime since, OnChange on_change,
                                 GrantMetrics* metrics)
    : runner_(runner),
      ended_pods_(ended_pods),
      pods_(pods),
      ledger_(ledger),
      since_(since),
      on_change_(std::move(on_change)),
      metrics_(metrics) {}

void UnredeemedWatch::ScheduleCheck() {
  runner_->PostDelayed(kInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    ScheduleCheck();
    Check();
  });
}

void UnredeemedWatch::Check() {
  const bool any = std::ranges::any_of(pods_->pods(), [](const auto& pod) {
    return !pod.second->ended && pod.second->request.ok() &&
           pod.second->request->requests_devices();
  });
  if (!any) return OnFound({});
  ended_pods_->ListKubeletPods([this](const Result<PodDevices>& kubelet_pods) {
    if (kubelet_pods.ok()) OnFound(UnredeemedContainers(*kubelet_pods, *pods_, *ledger_, since_));
  });
}

void UnredeemedWatch::OnFound(std::vector<std::string> containers) {
  std::vector<std::string> found_twice;
  std::ranges::set_intersection(containers, last_found_, std::back_inserter(found_twice));
  last_found_ = std::move(containers);
  metrics_->unredeemed_tokens = found_twice.size();
  if (found_twice == reported_) return;
  reported_ = std::move(found_twice);
  on_change_(reported_);
}

}  // namespace tessera::agent
