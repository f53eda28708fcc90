// SPDX-License-Identifier: Apache-2.0
// Finds containers that run without their GPUs: the kubelet has given them IDs of Tessera, so they
// have tokens, but tessera-runtime has never requested their grants, because the engine starts them
// through another runtime. Threads: one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/agent/grants/ended_pods.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/clock.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"

namespace tessera::agent {

// "namespace/pod/container", in order. Leaves out pods that were created before `since`, when the
// agent was installed, because another device plugin may have given them GPUs.
std::vector<std::string> UnredeemedContainers(const PodDevices& kubelet_pods, const Pods& pods,
                                              const GrantLedger& ledger, WallTime since);

// Looks for such containers every kInterval. Reports a container if two checks in a row have found
// it, because the kubelet lists a starting container before the container has its grant.
class UnredeemedWatch {
 public:
  static constexpr Duration kInterval = std::chrono::minutes(1);
  // Called when the containers change.
  using OnChange = std::function<void(const std::vector<std::string>& containers)>;

  // The arguments must outlive the object. `since`: see UnredeemedContainers.
  UnredeemedWatch(TaskRunner* runner, EndedPods* ended_pods, const Pods* pods,
                  const GrantLedger* ledger, WallTime since, OnChange on_change,
                  GrantMetrics* metrics);
  UnredeemedWatch(const UnredeemedWatch&) = delete;
  UnredeemedWatch& operator=(const UnredeemedWatch&) = delete;

  void Start() { ScheduleCheck(); }

 private:
  void ScheduleCheck();
  void Check();
  void OnFound(std::vector<std::string> containers);

  TaskRunner* const runner_;
  EndedPods* const ended_pods_;
  const Pods* const pods_;
  const GrantLedger* const ledger_;
  const WallTime since_;
  const OnChange on_change_;
  GrantMetrics* const metrics_;
  std::vector<std::string> last_found_;
  std::vector<std::string> reported_;
  WeakPtrFactory<UnredeemedWatch> weak_{this};
};

}  // namespace tessera::agent
