// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node's pods: grants, from the ledger, and assignments that are not granted yet,
// from annotations.
//
// Annotations are read once for each state of a pod. The scheduler or an older system wrote them,
// but a user can write annotations, too. So an assignment of more than the pod requests, or of a
// GPU that is not on this node, is an error.
//
// Threads: one.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "src/agent/grants/gpu_accounts.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/kubelet/admission_order.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/device/assignment.h"

namespace tessera::agent {

struct AnnotatedAssignment {
  Status status;                  // INVALID_ARGUMENT names the annotation
  device::Assignment assignment;  // of containers whose assignment is valid
};

class NodeOccupancy {
 public:
  using SetPtr = std::shared_ptr<const DeviceSet>;

  // The arguments must outlive the object; `pods` may be null.
  NodeOccupancy(const GrantLedger* ledger, const Pods* pods) : ledger_(ledger), pods_(pods) {}

  // Returns null for an unknown pod.
  const std::shared_ptr<const PodInfo>* Find(const Uid& uid) const;
  const AnnotatedAssignment& AnnotatedAssignmentOf(const std::shared_ptr<const PodInfo>& pod,
                                                   const SetPtr& set);
  // The agent's choice, else the assignment of the annotations. Empty for an unknown pod.
  device::Assignment AssignmentOf(const Uid& uid, const SetPtr& set);
  // Grants, and assignments that are not granted yet.
  GpuAccounts Accounts(const SetPtr& set);
  // Containers with an assignment that have neither a grant of the agent nor devices of the
  // kubelet.
  std::vector<AdmissionOrder::WaitingContainer> WaitingContainers(const SetPtr& set,
                                                                  device::MemoryUnit gpu_mem_unit);
  // Pods that have not ended and whose request is valid, in the order in which the kubelet admits
  // them: in the order of their arrival on the node, and pods of the first list by age.
  std::vector<std::shared_ptr<const PodInfo>> PodsInAdmissionOrder() const;

  // Sets the devices that the kubelet has allocated to pods.
  void SetKubeletDevices(const PodDevices& kubelet_pods);
  const std::set<std::string, std::less<>>& allocated_ids() const { return allocated_ids_; }
  // Call when the pod was added or changed.
  void OnPodAdded(const Uid& uid);
  void Forget(const Uid& uid);

 private:
  struct CachedAssignment {
    std::shared_ptr<const PodInfo> pod;
    SetPtr set;
    AnnotatedAssignment result;
  };

  const GrantLedger* const ledger_;
  const Pods* const pods_;
  std::map<Uid, CachedAssignment> cache_;
  std::map<Uid, uint64_t> arrivals_;  // number of each pod's arrival; 0: in the first list
  uint64_t last_arrival_ = 0;
  std::set<std::string, std::less<>> allocated_ids_;
  // Namespace, pod, container.
  std::set<std::tuple<std::string, std::string, std::string>> containers_with_devices_;
};

// Returns null if the request has no such container, or the container requests no device.
const device::ContainerRequest* FindContainerRequest(const device::DeviceRequest& request,
                                                     std::string_view container);

// Units of each resource that the kubelet allocates for the container. vcuda memory together with
// whole GPUs is left out, because it has no effect.
std::map<std::string, int64_t, std::less<>> RequestedUnits(
    const device::ContainerRequest& container, device::MemoryUnit gpu_mem_unit);

}  // namespace tessera::agent
