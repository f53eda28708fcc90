// SPDX-License-Identifier: Apache-2.0
#include "src/agent/local_choice.h"

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

class Choice {
 public:
  Choice(const LocalQuestion& question, const DeviceSet& set, GpuAccounts accounts)
      : question_(question),
        set_(set),
        accounts_(std::move(accounts)),
        result_(question.assigned) {}

  Status Place(const ContainerRequest& container) {
    if (container.count == 0 || container.dialect == Dialect::kNvidiaMig) return Status::Ok();
    if (result_.containers.contains(container.name)) return Status::Ok();
    std::vector<std::string> uuids;
    if (container.exclusive) {
      if (container.name != question_.container) return Status::Ok();
      ASSIGN_OR_RETURN(uuids, WholeGpus(container));
    } else {
      ASSIGN_OR_RETURN(std::string uuid, SharedGpu(container));
      uuids.push_back(std::move(uuid));
    }
    std::vector<DeviceShare>& shares = result_.containers[container.name];
    for (const std::string& uuid : uuids) {
      ASSIGN_OR_RETURN(DeviceShare share, device::ShareOn(container, set_.inventory(), uuid));
      accounts_.Add(uuid, HoldOf(question_.pod_uid, container, share));
      shares.push_back(std::move(share));
    }
    return Status::Ok();
  }

  device::Assignment result() && { return std::move(result_); }

 private:
  bool MayHave(const Gpu& gpu, const Hold& hold) const {
    return gpu.health.ok() && gpu.minor && !gpu.mig && question_.request->constraints.Allow(gpu) &&
           accounts_.HasRoom(gpu, hold) &&
           !(question_.phases_known && accounts_.MeetsItsOwnPod(gpu.uuid, hold));
  }

  // That of the pod's other containers, where the dialect keeps them together.
  const std::string* GpuOfThePod() const {
    for (const ContainerRequest& other : question_.request->containers) {
      if (other.dialect != Dialect::kGpuMem) continue;
      const auto found = result_.containers.find(other.name);
      if (found != result_.containers.end() && !found->second.empty()) {
        return &found->second.front().uuid;
      }
    }
    return nullptr;
  }

  Result<std::string> SharedGpu(const ContainerRequest& container) const {
    Hold hold{.pod_uid = question_.pod_uid,
              .phase = container.phase,
              .dialect = container.dialect,
              .compute = container.per_gpu.compute,
              .memory = container.per_gpu.memory};
    if (container.dialect == Dialect::kGpuMem) {
      if (const std::string* gpu = GpuOfThePod()) return *gpu;
      hold.memory = question_.request->OneGpuShare().memory;
      hold.phase = device::Phase::kMain;
    }
    std::optional<std::tuple<Bytes, MilliGpu, const Gpu*>> best;
    for (const Gpu& gpu : set_.inventory().gpus) {
      if (!MayHave(gpu, hold)) continue;
      const GpuUse use = accounts_.UseOf(gpu.uuid);
      const std::tuple left(gpu.memory - use.memory, kWholeGpu - use.compute, &gpu);
      if (!best || left < *best) best = left;
    }
    if (best) return std::get<const Gpu*>(*best)->uuid;
    return Error(
        Code::kResourceExhausted,
        "container \"{}\": no GPU of this node has {} MiB and {} thousandths free for a pod "
        "that came past the scheduler of Tessera: it starts when others end",
        container.name, ToMiB(hold.memory), hold.compute.count());
  }

  Result<std::vector<std::string>> WholeGpus(const ContainerRequest& container) const {
    const Hold hold{.pod_uid = question_.pod_uid,
                    .phase = container.phase,
                    .dialect = container.dialect,
                    .compute = kWholeGpu};
    const auto count = static_cast<size_t>(container.count);
    std::vector<std::string> free;
    for (const Gpu& gpu : set_.inventory().gpus) {
      if (set_.Find(gpu.uuid) != nullptr && MayHave(gpu, hold)) free.push_back(gpu.uuid);
    }
    const auto will_do = [&](const std::string& uuid) {
      return question_.contested.contains(uuid) ||
             std::find(free.begin(), free.end(), uuid) != free.end();
    };
    const std::vector<std::string>& named = question_.named;
    if (named.size() == count && std::all_of(named.begin(), named.end(), will_do)) return named;
    ASSIGN_OR_RETURN(std::vector<std::string> chosen,
                     set_.chooser().ChooseDevices(free, {}, container.count));
    if (chosen.size() == count) return chosen;
    return Error(Code::kResourceExhausted,
                 "container \"{}\": {} GPUs of this node are free, {} are asked for by a pod that "
                 "came past the scheduler of Tessera: it starts when others end",
                 container.name, free.size(), count);
  }

  const LocalQuestion& question_;
  const DeviceSet& set_;
  GpuAccounts accounts_;
  device::Assignment result_;
};

}  // namespace

Hold HoldOf(const std::string& pod_uid, const ContainerRequest& container,
            const DeviceShare& share) {
  return {pod_uid, container.phase, container.dialect, share.compute, share.memory};
}

Result<device::Assignment> ChooseLocally(const LocalQuestion& question, const DeviceSet& set,
                                         GpuAccounts accounts) {
  Choice choice(question, set, std::move(accounts));
  // Who starts now goes first.
  for (const bool now : {true, false}) {
    for (const ContainerRequest& container : question.request->containers) {
      if ((container.name == question.container) == now) RETURN_IF_ERROR(choice.Place(container));
    }
  }
  return std::move(choice).result();
}

}  // namespace tessera::agent
