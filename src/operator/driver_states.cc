// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver_states.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/kube/times.h"

namespace tessera::operators {
namespace {

// Prefixes of the resources by which pods hold GPUs.
constexpr std::string_view kGpuResourcePrefixes[] = {names::kResourceGpu, names::kResourceMigPrefix,
                                                     "aliyun.com/gpu", "tencent.com/vcuda-"};
// Nodes in JSON are tens of KiB each.
constexpr int kNodesPerPage = 100;

const Json& PartAt(const Json& object, std::string_view key) {
  static const Json kNone = Json::MakeObject();
  const Json* found = object.Find(key);
  return found != nullptr ? *found : kNone;
}

const Json::Array& ListAt(const Json& object, std::string_view key) {
  static const Json kNone = Json::MakeArray();
  const Json* found = object.Find(key);
  return found != nullptr && found->is_array() ? found->items() : kNone.items();
}

std::string TextIn(const Json& object, std::string_view key) {
  return object.StringAt(key).value_or("");
}

WallTime TimeIn(const Json& object, std::string_view key) {
  return kube::ParseRfc3339(TextIn(object, key)).value_or(WallTime{});
}

// Stores why a container does not run, unless it is only starting.
void ReadWaiting(const Json& container, driver::FleetPod* out) {
  const Json& waiting = PartAt(PartAt(container, "state"), "waiting");
  const std::string reason = TextIn(waiting, "reason");
  const bool is_starting =
      reason.empty() || reason == "PodInitializing" || reason == "ContainerCreating";
  if (is_starting || !out->reason.empty()) return;
  out->reason = reason;
  out->message =
      fmt::format("container {}: {}", TextIn(container, "name"), TextIn(waiting, "message"));
}

void ReadContainers(const Json& status, driver::FleetPod* out) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : ListAt(status, list)) {
      const auto restarts = static_cast<int>(container.IntAt("restartCount").value_or(0));
      out->pod.restarts = std::max(out->pod.restarts, restarts);
      ReadWaiting(container, out);
    }
  }
}

bool UsesGpu(const Json& pod) {
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : ListAt(PartAt(pod, "spec"), list)) {
      for (const auto& [name, unused] :
           PartAt(PartAt(container, "resources"), "limits").members()) {
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
  const Json& status = PartAt(*raw.json(), "status");
  node.os_image = TextIn(PartAt(status, "nodeInfo"), "osImage");
  node.kernel = TextIn(PartAt(status, "nodeInfo"), "kernelVersion");
  for (const Json& condition : ListAt(status, "conditions")) {
    if (TextIn(condition, "type") != names::kConditionGpuReady) continue;
    node.gpu_ready = TextIn(condition, "status") == "True";
    node.gpu_reason = TextIn(condition, "reason");
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
  const auto revision = out->meta.labels.find(names::kLabelDriverRevision);
  if (revision != out->meta.labels.end()) pod.pod.revision = revision->second;
  const Json& status = PartAt(*raw.json(), "status");
  for (const Json& condition : ListAt(status, "conditions")) {
    if (TextIn(condition, "type") == "Ready") pod.pod.ready = TextIn(condition, "status") == "True";
  }
  ReadContainers(status, &pod);
  return {};
}

kube::KeptFields KeptFieldsOfDriverPods() {
  const auto none = [](std::string_view) { return false; };
  return {.label = [](std::string_view key) { return key == names::kLabelDriverRevision; },
          .annotation = none,
          .resource = none};
}

driver::UpgradePod UpgradePodOf(const Json& pod, const StringMap& wait_for) {
  const Json& metadata = PartAt(pod, "metadata");
  const Json& labels = PartAt(metadata, "labels");
  const std::string phase = TextIn(PartAt(pod, "status"), "phase");
  driver::UpgradePod out{.ns = TextIn(metadata, "namespace"), .name = TextIn(metadata, "name")};
  out.uses_gpu = UsesGpu(pod);
  out.ended = phase == "Succeeded" || phase == "Failed";
  out.deleting = metadata.Find("deletionTimestamp") != nullptr;
  out.is_daemon = PartAt(metadata, "annotations").Find(names::kAnnotationConfigMirror) != nullptr;
  for (const Json& owner : ListAt(metadata, "ownerReferences")) {
    if (!owner.BoolAt("controller").value_or(false)) continue;
    out.controlled = true;
    out.is_daemon |= TextIn(owner, "kind") == "DaemonSet";
  }
  for (const Json& volume : ListAt(PartAt(pod, "spec"), "volumes")) {
    out.has_empty_dir |= volume.Find("emptyDir") != nullptr;
  }
  out.skips_drain = TextIn(labels, names::kLabelDrainSkip) == "true";
  out.waited_for = !wait_for.empty() && std::ranges::all_of(wait_for, [&](const auto& label) {
    return TextIn(labels, label.first) == label.second;
  });
  return out;
}

}  // namespace tessera::operators
