// SPDX-License-Identifier: Apache-2.0
// What the pods of this node hold and are to hold, from the ledger and from what is written on
// them. Threads: one.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/agent/admission.h"
#include "src/agent/assignments.h"
#include "src/agent/dialect_env.h"
#include "src/agent/gpu_accounts.h"
#include "src/agent/grant_ledger.h"
#include "src/agent/kubelet.h"
#include "src/agent/pods.h"

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
  std::vector<Admission::Waiting> Waiting(const SetPtr& set, const DialectSettings& settings);

  // What the kubelet has given away, as it says.
  void SetHeld(const PodDevices& listed);
  const std::set<std::string, std::less<>>& ids() const { return ids_; }
  void Forget(const std::string& uid) { assignments_.Forget(uid); }

 private:
  const GrantLedger* const ledger_;
  const Pods* const pods_;
  Assignments assignments_;
  std::set<std::string, std::less<>> ids_;
  std::set<std::tuple<std::string, std::string, std::string>> held_;  // namespace, pod, container
};

}  // namespace tessera::agent
