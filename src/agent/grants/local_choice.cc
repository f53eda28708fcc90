// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/local_choice.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "src/device/pod_annotations.h"

namespace tessera::agent {
namespace {

using device::ContainerRequest;
using device::DeviceShare;
using device::Dialect;
using device::Gpu;

bool Contains(const std::vector<std::string>& all, const std::string& uuid) {
  return std::ranges::count(all, uuid) != 0;
}

class LocalChooser {
 public:
  LocalChooser(const LocalDemand& demand, const DeviceSet& set, GpuAccounts accounts)
      : demand_(demand),
        set_(set),
        accounts_(std::move(accounts)),
        result_(demand.assignment),
        groups_(demand.request->Groups()) {}

  // The containers for which Place chooses whole GPUs. It chooses shares for all containers.
  enum class WholeGpusFor { kStartingContainer, kAllContainers };

  Status Place(const ContainerRequest& container, WholeGpusFor whole_gpus_for) {
    if (container.count == 0 || container.dialect == Dialect::kNvidiaMig) return Status::Ok();
    if (result_.containers.contains(container.name)) return Status::Ok();
    std::vector<std::string> uuids;
    if (container.exclusive) {
      if (whole_gpus_for == WholeGpusFor::kStartingContainer && !IsStarting(container)) {
        return Status::Ok();
      }
      ASSIGN_OR_RETURN(uuids, WholeGpus(container));
    } else {
      ASSIGN_OR_RETURN(std::string uuid, SharedGpu(container));
      uuids.push_back(std::move(uuid));
    }
    std::vector<DeviceShare>& shares = result_.containers[container.name];
    for (const std::string& uuid : uuids) {
      ASSIGN_OR_RETURN(DeviceShare share, device::ShareOn(container, set_.inventory(), uuid));
      accounts_.Add(uuid, HoldOf(demand_.pod_uid, container, share));
      shares.push_back(std::move(share));
    }
    return Status::Ok();
  }

  device::Assignment result() && { return std::move(result_); }

 private:
  bool IsStarting(const ContainerRequest& container) const {
    return container.name == demand_.container;
  }

  // Whether the kubelet named the GPUs of `container`. The kubelet names GPUs only for the starting
  // container.
  bool IsNamed(const ContainerRequest& container) const {
    return IsStarting(container) &&
           demand_.kubelet_gpus.size() == static_cast<size_t>(container.count);
  }

  bool OverlapsWithinPod(const Gpu& gpu, const Hold& hold) const {
    return demand_.phases_known && accounts_.OverlapsWithinPod(gpu.uuid, hold);
  }

  bool IsEligible(const Gpu& gpu, const Hold& hold) const {
    return gpu.health.ok() && gpu.minor && !gpu.mig && demand_.request->constraints.Allow(gpu) &&
           accounts_.HasRoom(gpu, hold) && !OverlapsWithinPod(gpu, hold);
  }

  // The containers that use the same GPUs as `container`, itself included. An init container uses
  // GPUs that a later container uses too. The kubelet and the scheduler also count these GPUs once.
  std::vector<const ContainerRequest*> GroupOf(const ContainerRequest& container) const {
    const std::vector<ContainerRequest>& all = demand_.request->containers;
    for (const std::vector<size_t>& group : groups_) {
      std::vector<const ContainerRequest*> members;
      for (const size_t i : group) members.push_back(&all[i]);
      if (std::ranges::count(members, &container) != 0) return members;
    }
    return {&container};
  }

  // GPUs that containers of the group already have, with room for another container. Unhealthy GPUs
  // are included, and the container waits for them: with another GPU the pod would hold more GPUs
  // than the scheduler counts for it.
  std::vector<std::string> GpusOfGroup(const std::vector<const ContainerRequest*>& group,
                                       const Hold& hold) const {
    std::vector<std::string> uuids;
    for (const ContainerRequest* member : group) {
      const auto found = result_.containers.find(member->name);
      if (found == result_.containers.end()) continue;
      for (const DeviceShare& share : found->second) {
        const Gpu* gpu = set_.inventory().Find(share.uuid);
        if (gpu == nullptr || Contains(uuids, share.uuid) || OverlapsWithinPod(*gpu, hold))
          continue;
        // The pod keeps its GPU even if the GPU was assigned to another pod meanwhile.
        const bool share_suffices = share.compute == kWholeGpu ||
                                    (share.compute >= hold.compute && share.memory >= hold.memory);
        if (share_suffices || accounts_.HasRoom(*gpu, hold)) uuids.push_back(share.uuid);
      }
    }
    return uuids;
  }

  bool PodHas(const std::string& uuid) const {
    return std::ranges::any_of(result_.containers, [&](const auto& container) {
      return std::ranges::count(container.second, uuid, &DeviceShare::uuid) != 0;
    });
  }

  // The GPU of the pod's containers of dialect gpu-mem, which all use one GPU; null if none has it
  // yet.
  const std::string* GpuOfGpuMemContainers() const {
    for (const ContainerRequest& other : demand_.request->containers) {
      if (other.dialect != Dialect::kGpuMem) continue;
      const auto found = result_.containers.find(other.name);
      if (found != result_.containers.end() && !found->second.empty()) {
        return &found->second.front().uuid;
      }
    }
    return nullptr;
  }

  Result<std::string> SharedGpu(const ContainerRequest& container) const {
    Hold hold{.pod_uid = demand_.pod_uid,
              .phase = container.phase,
              .dialect = container.dialect,
              .compute = container.per_gpu.compute,
              .memory = container.per_gpu.memory};
    if (container.dialect == Dialect::kGpuMem) {
      if (const std::string* gpu = GpuOfGpuMemContainers()) return *gpu;
      hold.memory = demand_.request->OneGpuShare().memory;
      hold.phase = device::Phase::kMain;
    } else {
      const std::vector<const ContainerRequest*> group = GroupOf(container);
      // The GPU needs room for the largest container of the group, because they use it one after
      // the other.
      for (const ContainerRequest* member : group) {
        if (member->exclusive) continue;
        hold.compute = std::max(hold.compute, member->per_gpu.compute);
        hold.memory = std::max(hold.memory, member->per_gpu.memory);
      }
      const std::vector<std::string> group_gpus = GpusOfGroup(group, hold);
      if (!group_gpus.empty()) return group_gpus.front();
    }
    std::optional<std::tuple<Bytes, MilliGpu, const Gpu*>> best;
    for (const Gpu& gpu : set_.inventory().gpus) {
      if (!IsEligible(gpu, hold)) continue;
      const GpuUse use = accounts_.UseOf(gpu.uuid);
      const std::tuple remaining(gpu.memory - use.memory, kWholeGpu - use.compute, &gpu);
      if (!best || remaining < *best) best = remaining;
    }
    if (best) return std::get<const Gpu*>(*best)->uuid;
    return Error(
        Code::kResourceExhausted,
        "container \"{}\": no GPU of this node has {} MiB and {} thousandths free for a pod "
        "that bypasses the scheduler of Tessera: it starts when other pods end",
        container.name, ToMiB(hold.memory), hold.compute.count());
  }

  Result<std::vector<std::string>> WholeGpus(const ContainerRequest& container) const {
    const Hold hold{.pod_uid = demand_.pod_uid,
                    .phase = container.phase,
                    .dialect = container.dialect,
                    .compute = kWholeGpu};
    const auto count = static_cast<size_t>(container.count);
    const std::vector<std::string> group_gpus = GpusOfGroup(GroupOf(container), hold);
    if (group_gpus.size() > count) return ChooseFromGroup(container, group_gpus);
    // GPUs of the pod's other groups are used only if the rest does not suffice.
    std::vector<std::string> candidates = group_gpus, preferred = group_gpus;
    for (const Gpu& gpu : set_.inventory().gpus) {
      if (set_.Find(gpu.uuid) == nullptr || !IsEligible(gpu, hold)) continue;
      if (Contains(group_gpus, gpu.uuid)) continue;
      candidates.push_back(gpu.uuid);
      if (!PodHas(gpu.uuid)) preferred.push_back(gpu.uuid);
    }
    ASSIGN_OR_RETURN(std::vector<std::string> chosen, ChooseFrom(container, preferred, group_gpus));
    if (chosen.empty()) {
      ASSIGN_OR_RETURN(chosen, ChooseFrom(container, candidates, group_gpus));
    }
    if (chosen.size() == count) return chosen;
    return Error(Code::kResourceExhausted,
                 "container \"{}\": {} GPUs of this node are free, {} are requested by a pod that "
                 "bypasses the scheduler of Tessera: it starts when other pods end",
                 container.name, candidates.size(), count);
  }

  // Chooses from `group_gpus`, which has more than enough GPUs: healthy GPUs if they suffice, and
  // the GPUs that the kubelet named if these are among them.
  Result<std::vector<std::string>> ChooseFromGroup(
      const ContainerRequest& container, const std::vector<std::string>& group_gpus) const {
    std::vector<std::string> healthy;
    for (const std::string& uuid : group_gpus) {
      if (set_.inventory().Find(uuid)->health.ok()) healthy.push_back(uuid);
    }
    const bool suffice = healthy.size() >= static_cast<size_t>(container.count);
    const std::vector<std::string>& usable = suffice ? healthy : group_gpus;
    const auto is_usable = [&](const std::string& uuid) { return Contains(usable, uuid); };
    const std::vector<std::string>& named = demand_.kubelet_gpus;
    if (IsNamed(container) && std::ranges::all_of(named, is_usable)) return named;
    return set_.chooser().ChooseDevices(usable, {}, container.count);
  }

  // Chooses from `candidates`, which includes `group_gpus`: the GPUs that the kubelet named if
  // `candidates` has them, else the GPUs with the best links. Empty if `candidates` does not
  // suffice.
  Result<std::vector<std::string>> ChooseFrom(const ContainerRequest& container,
                                              const std::vector<std::string>& candidates,
                                              const std::vector<std::string>& group_gpus) const {
    const std::vector<std::string>& named = demand_.kubelet_gpus;
    const auto is_allowed = [&](const std::string& uuid) {
      return demand_.contested_gpus.contains(uuid) || Contains(candidates, uuid);
    };
    const auto is_named = [&](const std::string& uuid) { return Contains(named, uuid); };
    if (IsNamed(container) && std::ranges::all_of(named, is_allowed) &&
        std::ranges::all_of(group_gpus, is_named)) {
      return named;
    }
    return set_.chooser().ChooseDevices(candidates, group_gpus, container.count);
  }

  const LocalDemand& demand_;
  const DeviceSet& set_;
  GpuAccounts accounts_;
  device::Assignment result_;
  const std::vector<std::vector<size_t>> groups_;
};

}  // namespace

Hold HoldOf(const Uid& pod_uid, const ContainerRequest& container, const DeviceShare& share) {
  return {pod_uid, container.phase, container.dialect, share.compute, share.memory};
}

Result<device::Assignment> ChooseLocally(const LocalDemand& demand, const DeviceSet& set,
                                         GpuAccounts accounts) {
  LocalChooser chooser(demand, set, std::move(accounts));
  // The starting container chooses first.
  for (const bool starting : {true, false}) {
    for (const ContainerRequest& container : demand.request->containers) {
      if ((container.name == demand.container) != starting) continue;
      RETURN_IF_ERROR(chooser.Place(container, LocalChooser::WholeGpusFor::kStartingContainer));
    }
  }
  // If the node has no room for all containers of the pod, the pod gets no GPU. Otherwise the pod
  // would hold GPUs although it cannot run, and the scheduler would not count them for the pod.
  LocalChooser all = chooser;
  for (const ContainerRequest& container : demand.request->containers) {
    RETURN_IF_ERROR(all.Place(container, LocalChooser::WholeGpusFor::kAllContainers));
  }
  return std::move(chooser).result();
}

}  // namespace tessera::agent
