// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/node_occupancy.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/names.h"
#include "src/agent/grants/local_choice.h"
#include "src/device/pod_annotations.h"

namespace tessera::agent {
namespace {

AnnotatedAssignment Read(const PodInfo& pod, const DeviceSet& set) {
  AnnotatedAssignment result;
  if (!pod.request.ok()) {
    result.status = pod.request.status();
    return result;
  }
  Result<std::optional<device::Assignment>> read = device::AssignmentFrom(
      pod.annotations, *pod.request, set.inventory(), set.shares().gpu_mem_unit());
  if (!read.ok()) {
    result.status = read.status();
    return result;
  }
  if (!*read) return result;
  for (auto& [name, shares] : (*read)->containers) {
    const device::ContainerRequest* container = FindContainerRequest(*pod.request, name);
    const Status status =
        container == nullptr
            ? Error(Code::kInvalidArgument,
                    "container \"{}\" requests no GPU, but has an assignment", name)
            : device::CheckShares(*container, shares, set.inventory());
    if (status.ok()) {
      result.assignment.containers.emplace(name, std::move(shares));
    } else if (result.status.ok()) {
      result.status = status.Annotate("the pod's annotations");
    }
  }
  return result;
}

}  // namespace

const device::ContainerRequest* FindContainerRequest(const device::DeviceRequest& request,
                                                     std::string_view container) {
  const auto found = std::ranges::find_if(request.containers, [&](const auto& candidate) {
    return candidate.name == container && candidate.count > 0;
  });
  return found == request.containers.end() ? nullptr : &*found;
}

std::map<std::string, int64_t, std::less<>> RequestedUnits(
    const device::ContainerRequest& container, device::MemoryUnit unit) {
  std::map<std::string, int64_t, std::less<>> requested;
  const auto set = [&](std::string_view resource, int64_t units) {
    requested.emplace(resource, units);
  };
  switch (container.dialect) {
    case device::Dialect::kNvidiaGpu:
      set(names::kResourceGpu, container.count);
      break;
    case device::Dialect::kGpuMem:
      set(names::kResourceGpuMem, container.per_gpu.memory.count() / device::SizeOf(unit).count());
      break;
    case device::Dialect::kVcuda:
      set(names::kResourceVcudaCore,
          container.count * container.per_gpu.compute.count() / device::kVcudaCore.count());
      if (container.exclusive) break;
      set(names::kResourceVcudaMemory,
          container.per_gpu.memory.count() / device::kVcudaMemoryBlock.count());
      break;
    case device::Dialect::kNone:
    case device::Dialect::kNvidiaMig:
      break;  // the agent does not advertise these
  }
  return requested;
}

const std::shared_ptr<const PodInfo>* NodeOccupancy::Find(const Uid& uid) const {
  if (pods_ == nullptr) return nullptr;
  const auto found = pods_->pods().find(uid);
  return found == pods_->pods().end() ? nullptr : &found->second;
}

const AnnotatedAssignment& NodeOccupancy::AnnotatedAssignmentOf(
    const std::shared_ptr<const PodInfo>& pod, const SetPtr& set) {
  CachedAssignment& cached = cache_[pod->uid];
  if (cached.pod != pod || cached.set != set) cached = {pod, set, Read(*pod, *set)};
  return cached.result;
}

device::Assignment NodeOccupancy::AssignmentOf(const Uid& uid, const SetPtr& set) {
  device::Assignment assignment;
  if (const auto* chosen = ledger_->ChosenFor(uid)) assignment = *chosen;
  const auto* pod = Find(uid);
  if (pod == nullptr) return assignment;
  device::Assignment from_annotations = AnnotatedAssignmentOf(*pod, set).assignment;
  assignment.containers.merge(from_annotations.containers);
  return assignment;
}

GpuAccounts NodeOccupancy::Accounts(const SetPtr& set) {
  GpuAccounts accounts = ledger_->Accounts();
  if (pods_ == nullptr) return accounts;
  for (const auto& [uid, pod] : pods_->pods()) {
    if (pod->ended || !pod->request.ok()) continue;
    const device::Assignment assignment = AssignmentOf(uid, set);
    for (const auto& [name, shares] : assignment.containers) {
      const device::ContainerRequest* container = FindContainerRequest(*pod->request, name);
      if (container == nullptr || ledger_->entries().contains({uid, name})) continue;
      for (const device::DeviceShare& share : shares) {
        accounts.Add(share.uuid, HoldOf(uid, *container, share));
      }
    }
  }
  return accounts;
}

std::vector<std::shared_ptr<const PodInfo>> NodeOccupancy::PodsInAdmissionOrder() const {
  std::vector<std::shared_ptr<const PodInfo>> pods;
  if (pods_ == nullptr) return pods;
  // The kubelet watches the same pods, and sorts pods that arrive together by age.
  struct PodTurn {
    uint64_t arrival;
    WallTime created;
    const std::shared_ptr<const PodInfo>* pod;
  };
  std::vector<PodTurn> turns;
  for (const auto& [uid, pod] : pods_->pods()) {
    if (pod->ended || !pod->request.ok()) continue;
    const auto arrival = arrivals_.find(uid);
    turns.push_back({arrival == arrivals_.end() ? 0 : arrival->second, pod->created, &pod});
  }
  std::stable_sort(turns.begin(), turns.end(), [](const PodTurn& a, const PodTurn& b) {
    return std::tie(a.arrival, a.created) < std::tie(b.arrival, b.created);
  });
  pods.reserve(turns.size());
  for (const PodTurn& turn : turns) pods.push_back(*turn.pod);
  return pods;
}

void NodeOccupancy::OnPodAdded(const Uid& uid) {
  if (!arrivals_.contains(uid)) arrivals_[uid] = pods_->synced() ? ++last_arrival_ : 0;
}

void NodeOccupancy::Forget(const Uid& uid) {
  cache_.erase(uid);
  arrivals_.erase(uid);
}

std::vector<AdmissionOrder::WaitingContainer> NodeOccupancy::WaitingContainers(
    const SetPtr& set, device::MemoryUnit gpu_mem_unit) {
  std::vector<AdmissionOrder::WaitingContainer> waiting;
  for (const auto& pod : PodsInAdmissionOrder()) {
    const device::Assignment assignment = AssignmentOf(pod->uid, set);
    for (const device::ContainerRequest& container : pod->request->containers) {
      const auto shares = assignment.containers.find(container.name);
      if (shares == assignment.containers.end() ||
          containers_with_devices_.contains({pod->ns, pod->name, container.name}) ||
          ledger_->entries().contains({pod->uid, container.name})) {
        continue;
      }
      waiting.push_back(
          {pod->uid, container.name, RequestedUnits(container, gpu_mem_unit), shares->second});
    }
  }
  return waiting;
}

void NodeOccupancy::SetKubeletDevices(const PodDevices& kubelet_pods) {
  allocated_ids_.clear();
  containers_with_devices_.clear();
  for (const HeldDevices& held : kubelet_pods.held_devices) {
    allocated_ids_.insert(held.ids.begin(), held.ids.end());
    containers_with_devices_.insert({held.pod_namespace, held.pod_name, held.container});
  }
}

}  // namespace tessera::agent
