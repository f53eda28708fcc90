// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node_view.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/agent/local_choice.h"

namespace tessera::agent {
namespace {

// How many units of which resource the kubelet allocates for it. Memory beside whole GPUs of vcuda
// is left out: it decides nothing.
std::map<std::string, int64_t, std::less<>> AsksOf(const device::ContainerRequest& container,
                                                   device::MemoryUnit unit) {
  std::map<std::string, int64_t, std::less<>> asks;
  const auto set = [&](std::string_view resource, int64_t units) { asks.emplace(resource, units); };
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
    default:
      break;
  }
  return asks;
}

}  // namespace

const std::shared_ptr<const PodInfo>* NodeView::Find(const std::string& uid) const {
  if (pods_ == nullptr) return nullptr;
  const auto found = pods_->pods().find(uid);
  return found == pods_->pods().end() ? nullptr : &found->second;
}

device::Assignment NodeView::AssignmentOf(const std::string& uid, const SetPtr& set) {
  device::Assignment assignment;
  if (const auto* chosen = ledger_->ChosenFor(uid)) assignment = *chosen;
  const auto* pod = Find(uid);
  if (pod == nullptr) return assignment;
  device::Assignment annotated = assignments_.Of(*pod, set).assignment;
  assignment.containers.merge(annotated.containers);
  return assignment;
}

GpuAccounts NodeView::Accounts(const SetPtr& set) {
  GpuAccounts accounts = ledger_->Accounts();
  if (pods_ == nullptr) return accounts;
  for (const auto& [uid, pod] : pods_->pods()) {
    if (pod->ended || !pod->request.ok()) continue;
    const device::Assignment assignment = AssignmentOf(uid, set);
    for (const auto& [name, shares] : assignment.containers) {
      const device::ContainerRequest* container = FindAsking(*pod->request, name);
      if (container == nullptr || ledger_->entries().contains({uid, name})) continue;
      for (const device::DeviceShare& share : shares) {
        accounts.Add(share.uuid, HoldOf(uid, *container, share));
      }
    }
  }
  return accounts;
}

std::vector<Admission::Waiting> NodeView::Waiting(const SetPtr& set,
                                                  const DialectSettings& settings) {
  std::vector<Admission::Waiting> waiting;
  if (pods_ == nullptr) return waiting;
  std::vector<std::shared_ptr<const PodInfo>> by_age;
  for (const auto& [uid, pod] : pods_->pods()) {
    if (!pod->ended && pod->request.ok()) by_age.push_back(pod);
  }
  // As the kubelet sorts those that come together.
  std::stable_sort(by_age.begin(), by_age.end(),
                   [](const auto& a, const auto& b) { return a->created < b->created; });
  for (const auto& pod : by_age) {
    const device::Assignment assignment = AssignmentOf(pod->uid, set);
    for (const device::ContainerRequest& container : pod->request->containers) {
      const auto shares = assignment.containers.find(container.name);
      if (shares == assignment.containers.end() ||
          held_.contains({pod->ns, pod->name, container.name}) ||
          ledger_->entries().contains({pod->uid, container.name})) {
        continue;
      }
      waiting.push_back(
          {pod->uid, pod->ns, pod->name, container.name, AsksOf(container, settings.gpu_mem_unit),
           shares->second,
           DialectEnv(*pod->request, container, shares->second, set->inventory(), settings)});
    }
  }
  return waiting;
}

void NodeView::SetHeld(const PodDevices& listed) {
  ids_.clear();
  held_.clear();
  for (const HeldDevices& held : listed.held) {
    ids_.insert(held.ids.begin(), held.ids.end());
    held_.insert({held.pod_namespace, held.pod_name, held.container});
  }
}

}  // namespace tessera::agent
