// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver_states.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/formats/json.h"
#include "src/kube/times.h"

namespace tessera::operators {
namespace {

// Prefixes of the resources by which pods hold GPUs.
constexpr std::string_view kGpuResourcePrefixes[] = {names::kResourceGpu, names::kResourceMigPrefix,
                                                     "aliyun.com/gpu", "tencent.com/vcuda-"};
// Nodes in JSON are tens of KiB each.
constexpr int kNodesPerPage = 100;

WallTime TimeIn(const Json& object, std::string_view key) {
  return kube::ParseRfc3339(TextAt(object, {key})).value_or(WallTime{});
}

// Stores why a container does not run, unless it is only starting.
void ReadWaiting(const Json& container, driver::FleetPod* out) {
  const std::string reason = TextAt(container, {"state", "waiting", "reason"});
  const bool is_starting =
      reason.empty() || reason == "PodInitializing" || reason == "ContainerCreating";
  if (is_starting || !out->reason.empty()) return;
  out->reason = reason;
  out->message = fmt::format("container {}: {}", TextAt(container, {"name"}),
                             TextAt(container, {"state", "waiting", "message"}));
}

void ReadContainers(const Json& pod, driver::FleetPod* out) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : ItemsAt(pod, {"status", list})) {
      const auto restarts = static_cast<int>(container.IntAt("restartCount").value_or(0));
      out->pod.restarts = std::max(out->pod.restarts, restarts);
      ReadWaiting(container, out);
    }
  }
}

bool UsesGpu(const Json& pod) {
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : ItemsAt(pod, {"spec", list})) {
      for (const auto& [name, unused] : MembersAt(container, {"resources", "limits"})) {
        const auto is_gpu = [&](std::string_view prefix) { return name.starts_with(prefix); };
        if (std::ranges::any_of(kGpuResourcePrefixes, is_gpu)) return true;
      }
    }
  }
  return false;
}

}  // namespace

void DriverNodeState::Prepare(kube::ListQuery* query) {
  query->type = kube::kNodes;
  query->encoding = kube::Encoding::kJson;
  query->limit = kNodesPerPage;
}

Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept,
                    DriverNodeState* out) {
  kube::NodeObject object;
  RETURN_IF_ERROR(kube::DecodeObject(raw, kept, &object));
  out->meta = std::move(object.meta);
  if (raw.json() == nullptr) {
    return Error(Code::kInvalidArgument, "node {} is not JSON", out->meta.name);
  }
  driver::FleetNode& node = out->node;
  node.name = out->meta.name;
  node.labels = std::exchange(out->meta.labels, {});
  node.annotations = std::exchange(out->meta.annotations, {});
  node.unschedulable = object.unschedulable;
  node.ready = object.ready;
  node.os_image = TextAt(*raw.json(), {"status", "nodeInfo", "osImage"});
  node.kernel = TextAt(*raw.json(), {"status", "nodeInfo", "kernelVersion"});
  for (const Json& condition : ItemsAt(*raw.json(), {"status", "conditions"})) {
    if (TextAt(condition, {"type"}) != names::kConditionGpuReady) continue;
    node.gpu_ready = TextAt(condition, {"status"}) == "True";
    node.gpu_reason = TextAt(condition, {"reason"});
    node.gpu_since = TimeIn(condition, "lastTransitionTime");
    node.gpu_written = TimeIn(condition, "lastHeartbeatTime");
  }
  return {};
}

kube::KeptFields KeptFieldsOfDriverNodes(std::set<std::string, std::less<>> selectors) {
  const auto none = [](std::string_view) { return false; };
  const auto label = [selectors = std::move(selectors)](std::string_view key) {
    return key.starts_with(names::kLabelDeployPrefix) || key == names::kLabelGpuPresent ||
           key == names::kLabelUpgradeState || key == names::kLabelUpgradeSkip ||
           key == names::kLabelDriverPool || key == names::kLabelDriverRevision ||
           selectors.contains(key);
  };
  const auto annotation = [](std::string_view key) {
    return key.starts_with("tessera.dev/driver-") || key.starts_with("nvidia.com/gpu-driver-");
  };
  return {.label = label, .annotation = annotation, .resource = none};
}

void DriverPodState::Prepare(kube::ListQuery* query) {
  query->type = kube::kPods;
  query->encoding = kube::Encoding::kJson;
}

Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, DriverPodState* out) {
  kube::PodObject object;
  RETURN_IF_ERROR(kube::DecodeObject(raw, kept, &object));
  out->meta = std::move(object.meta);
  if (raw.json() == nullptr) {
    return Error(Code::kInvalidArgument, "pod {} is not JSON", out->meta.name);
  }
  driver::FleetPod& pod = out->pod;
  pod.node = std::move(object.node_name);
  pod.created = out->meta.created;
  pod.pod.ns = out->meta.ns;
  pod.pod.name = out->meta.name;
  pod.pod.deleting = out->meta.deleting;
  pod.pod.revision = ValueAt(out->meta.labels, names::kLabelDriverRevision);
  for (const Json& condition : ItemsAt(*raw.json(), {"status", "conditions"})) {
    if (TextAt(condition, {"type"}) != "Ready") continue;
    pod.pod.ready = TextAt(condition, {"status"}) == "True";
  }
  ReadContainers(*raw.json(), &pod);
  return {};
}

kube::KeptFields KeptFieldsOfDriverPods() {
  const auto none = [](std::string_view) { return false; };
  return {.label = [](std::string_view key) { return key == names::kLabelDriverRevision; },
          .annotation = none,
          .resource = none};
}

driver::UpgradePod UpgradePodOf(const Json& pod, const StringMap& wait_for) {
  const std::string phase = TextAt(pod, {"status", "phase"});
  driver::UpgradePod out{.ns = TextAt(pod, {"metadata", "namespace"}),
                         .name = TextAt(pod, {"metadata", "name"})};
  out.uses_gpu = UsesGpu(pod);
  out.ended = phase == "Succeeded" || phase == "Failed";
  out.deleting = FindPath(pod, {"metadata", "deletionTimestamp"}) != nullptr;
  out.is_daemon =
      FindPath(pod, {"metadata", "annotations", names::kAnnotationConfigMirror}) != nullptr;
  for (const Json& owner : ItemsAt(pod, {"metadata", "ownerReferences"})) {
    if (!owner.BoolAt("controller").value_or(false)) continue;
    out.controlled = true;
    out.is_daemon |= TextAt(owner, {"kind"}) == "DaemonSet";
  }
  for (const Json& volume : ItemsAt(pod, {"spec", "volumes"})) {
    out.has_empty_dir |= volume.Find("emptyDir") != nullptr;
  }
  out.skips_drain = TextAt(pod, {"metadata", "labels", names::kLabelDrainSkip}) == "true";
  out.waited_for = !wait_for.empty() && std::ranges::all_of(wait_for, [&](const auto& label) {
    return TextAt(pod, {"metadata", "labels", label.first}) == label.second;
  });
  return out;
}

}  // namespace tessera::operators
