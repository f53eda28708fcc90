// SPDX-License-Identifier: Apache-2.0
// What the pods of this node hold and are to hold, from the ledger and from what is written on
// them. Threads: one.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/agent/grants/assignments.h"
#include "src/agent/grants/gpu_accounts.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/kubelet/admission.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"

namespace tessera::agent {

class NodeView {
 public:
  using SetPtr = std::shared_ptr<const DeviceSet>;

  // Both outlive it; `pods` may be null.
  NodeView(const GrantLedger* ledger, const Pods* pods) : ledger_(ledger), pods_(pods) {}

  // Null for a pod that is not known.
  const std::shared_ptr<const PodInfo>* Find(const std::string& uid) const;
  const Assignments::Assigned& AssignedTo(const std::shared_ptr<const PodInfo>& pod,
                                          const SetPtr& set) {
    return assignments_.Of(pod, set);
  }
  // What the agent chose, else what the annotations assign. Empty for a pod that is not known.
  device::Assignment AssignmentOf(const std::string& uid, const SetPtr& set);
  // What is granted, and what is assigned and not granted yet.
  GpuAccounts Accounts(const SetPtr& set);
  // Containers that have been assigned GPUs, and that neither we nor the kubelet gave any.
  std::vector<Admission::Waiting> Waiting(const SetPtr& set, device::MemoryUnit gpu_mem_unit);
  // Those that have not ended and whose request makes sense, in the order in which the kubelet
  // comes to them: as they come to the node, and those that were there before us by age.
  std::vector<std::shared_ptr<const PodInfo>> PodsInOrder() const;

  // What the kubelet has given away, as it says.
  void SetHeld(const PodDevices& listed);
  const std::set<std::string, std::less<>>& ids() const { return ids_; }
  // The pod is there, maybe for the first time.
  void Came(const std::string& uid);
  void Forget(const std::string& uid);

 private:
  const GrantLedger* const ledger_;
  const Pods* const pods_;
  Assignments assignments_;
  std::map<std::string, uint64_t, std::less<>> came_;  // by UID; 0: before all were known
  uint64_t last_came_ = 0;
  std::set<std::string, std::less<>> ids_;
  std::set<std::tuple<std::string, std::string, std::string>> held_;  // namespace, pod, container
};

// How many units of which resource the kubelet allocates for it. Memory beside whole GPUs of vcuda
// is left out: it decides nothing.
std::map<std::string, int64_t, std::less<>> AsksOf(const device::ContainerRequest& container,
                                                   device::MemoryUnit gpu_mem_unit);

}  // namespace tessera::agent
