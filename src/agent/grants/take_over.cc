// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/take_over.h"

#include <utility>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/device/pod_annotations.h"

namespace tessera::agent {
namespace {

using ReadInto = Status (*)(std::string_view text, device::AllocatedMinors* minors);

void ReadFileInto(const std::string& path, ReadInto read, device::AllocatedMinors* minors) {
  if (path.empty()) return;
  const Result<std::string> text = ReadFile(path, device::kMaxCheckpointBytes);
  if (text.status().code() == Code::kNotFound) return;
  const Status status = text.ok() ? read(*text, minors) : text.status();
  if (status.ok()) return;
  Log(Severity::kWarning,
      "cannot read a checkpoint of another device plugin completely: the GPUs of containers "
      "without a valid entry come from the annotations of their pods",
      {{"file", path}, {"error", status.ToString()}});
}

}  // namespace

bool PluginTakeover::AddEntries(const PodInfo& pod, const AnnotatedAssignment& annotated,
                                const DeviceSet& set, const DialectSettings& settings,
                                WallTime now) {
  if (pod.ended || !pod.request.ok()) return false;
  device::Assignment assignment;
  bool differs_from_annotations = false;
  for (const device::ContainerRequest& container : pod.request->containers) {
    if (container.count == 0 || ledger_->entries().contains({pod.uid, container.name})) continue;
    auto shares = HeldBy(pod, container, annotated, set.inventory());
    if (shares.empty()) continue;
    const auto assigned = annotated.assignment.containers.find(container.name);
    differs_from_annotations |=
        assigned == annotated.assignment.containers.end() || assigned->second != shares;
    assignment.containers[container.name] = std::move(shares);
  }
  bool added_any = false;
  for (const auto& [name, shares] : assignment.containers) {
    const device::ContainerRequest& container = *FindContainerRequest(*pod.request, name);
    GrantLedger::Entry entry{.holder = {pod.uid, pod.ns, pod.name, name},
                             .phase = container.phase,
                             .dialect = container.dialect,
                             .shares = shares};
    entry.env = DialectEnv(*pod.request, container, shares, set.inventory(), settings);
    const Status status = ledger_->Bind(entry, differs_from_annotations ? &assignment : nullptr,
                                        set.inventory(), now);
    if (!status.ok()) {
      LogOnce(pod, name, status);
      continue;
    }
    added_any = true;
    Log(Severity::kInfo, "took over a container and its GPU from another device plugin",
        {{"pod", pod.Text()}, {"container", name}, {"gpu", shares.front().uuid}});
  }
  return added_any;
}

// Empty if the container holds nothing, or its GPUs are unknown.
std::vector<device::DeviceShare> PluginTakeover::HeldBy(const PodInfo& pod,
                                                        const device::ContainerRequest& container,
                                                        const AnnotatedAssignment& annotated,
                                                        const device::NodeInventory& inventory) {
  if (const auto minors = minors_.find({pod.uid, container.name}); minors != minors_.end()) {
    auto shares = SharesOf(minors->second, container, inventory);
    if (shares.ok()) return *std::move(shares);
    LogOnce(pod, container.name, shares.status().Annotate("checkpoint"));
  }
  // A container with Tessera's annotation gets its grant and entry when it starts.
  const bool started = pod.container_ids.contains(container.name);
  if (!started || pod.annotations.contains(names::kAnnotationAssignment)) return {};
  const auto assigned = annotated.assignment.containers.find(container.name);
  return assigned == annotated.assignment.containers.end() ? std::vector<device::DeviceShare>()
                                                           : assigned->second;
}

Result<std::vector<device::DeviceShare>> PluginTakeover::SharesOf(
    const std::vector<int>& minors, const device::ContainerRequest& container,
    const device::NodeInventory& inventory) const {
  std::vector<device::DeviceShare> shares;
  for (const int minor : minors) {
    const device::Gpu* gpu = inventory.FindByMinor(minor);
    if (gpu == nullptr) {
      return Error(Code::kNotFound, "the node has no GPU with minor number {}", minor);
    }
    ASSIGN_OR_RETURN(device::DeviceShare share, device::ShareOn(container, inventory, gpu->uuid));
    shares.push_back(std::move(share));
  }
  RETURN_IF_ERROR(device::CheckShares(container, shares, inventory));
  return shares;
}

void PluginTakeover::LogOnce(const PodInfo& pod, const std::string& container,
                             const Status& status) {
  if (!pods_with_logged_error_.insert(pod.uid).second) return;
  Log(Severity::kWarning, "cannot take over a container and its GPU from another device plugin",
      {{"pod", pod.Text()}, {"container", container}, {"error", status.ToString()}});
}

device::AllocatedMinors ReadCheckpoints(const std::string& kubelet_file,
                                        const std::string& gpu_manager_file) {
  // The kubelet's checkpoint takes precedence, because gpu-manager could only guess the pod of
  // an Allocate call.
  device::AllocatedMinors minors;
  ReadFileInto(kubelet_file, device::AddKubeletCheckpoint, &minors);
  ReadFileInto(gpu_manager_file, device::AddGpuManagerCheckpoint, &minors);
  return minors;
}

}  // namespace tessera::agent
