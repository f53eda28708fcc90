// SPDX-License-Identifier: Apache-2.0
#include "src/operator/node_states.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/components/cluster_policy.h"
#include "src/formats/wire_reader.h"

namespace tessera::operators {
namespace {

// A condition of a node or pod. Both types have these fields, but different field numbers for the
// texts.
struct ConditionText {
  std::string_view type, status, reason, message;
};

// Field numbers: generated.proto of k8s.io/api, core/v1: NodeCondition and PodCondition.
Result<ConditionText> ReadCondition(std::string_view bytes) {
  ConditionText condition;
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) condition.type = reader.Bytes();
    if (reader.field() == 2) condition.status = reader.Bytes();
    if (reader.field() == 5) condition.reason = reader.Bytes();
    if (reader.field() == 6) condition.message = reader.Bytes();
  }
  RETURN_IF_ERROR(reader.status());
  return condition;
}

Status ReadNodeConditions(std::string_view status, GpuNodeState* out) {
  WireReader reader(status);
  while (reader.Next()) {
    if (reader.field() != 4) continue;
    ASSIGN_OR_RETURN(const ConditionText condition, ReadCondition(reader.Bytes()));
    if (condition.type != names::kConditionGpuReady) continue;
    out->gpu_ready = condition.status == "True";
    out->gpu_reason = condition.reason;
    if (!out->gpu_ready) out->gpu_message = condition.message;
  }
  return reader.status();
}

// Reads ContainerStateWaiting: why a container does not run.
Status ReadContainer(std::string_view bytes, AgentPodState* out) {
  std::string_view state;
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 2) state = reader.Bytes();
  }
  RETURN_IF_ERROR(reader.status());
  WireReader kinds(state);
  while (kinds.Next()) {
    if (kinds.field() != 1) continue;
    std::string_view reason, message;
    WireReader waiting(kinds.Bytes());
    while (waiting.Next()) {
      if (waiting.field() == 1) reason = waiting.Bytes();
      if (waiting.field() == 2) message = waiting.Bytes();
    }
    RETURN_IF_ERROR(waiting.status());
    // PodInitializing only means that a container waits for earlier containers.
    if (reason.empty() || reason == "PodInitializing" || !out->reason.empty()) continue;
    out->reason = reason;
    out->message = message;
  }
  return kinds.status();
}

Status ReadPodStatus(std::string_view bytes, AgentPodState* out) {
  std::string reason, message;  // of a condition, if no container has a reason
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 2) {
      ASSIGN_OR_RETURN(const ConditionText condition, ReadCondition(reader.Bytes()));
      if (condition.type == "Ready") out->ready = condition.status == "True";
      if (condition.type == "PodScheduled" && condition.status == "False") {
        reason = condition.reason;
        message = condition.message;
      }
    }
    // containerStatuses and initContainerStatuses.
    if (reader.field() == 8 || reader.field() == 10) {
      RETURN_IF_ERROR(ReadContainer(reader.Bytes(), out));
    }
  }
  RETURN_IF_ERROR(reader.status());
  if (out->ready) {
    out->reason.clear();
    out->message.clear();
  } else if (out->reason.empty()) {
    out->reason = reason.empty() ? "AgentNotReady" : reason;
    out->message = message;
  }
  return {};
}

}  // namespace

void GpuNodeState::Prepare(kube::ListQuery* query) {
  query->type = kube::kNodes;
  query->encoding = kube::Encoding::kProtobuf;
}

bool GpuNodeState::has_gpus() const {
  return ValueAt(meta.labels, names::kLabelGpuPresent) == "true";
}

bool GpuNodeState::managed_by_nvidia() const {
  const auto label = meta.labels.find(names::kLabelDeployDevicePlugin);
  return label != meta.labels.end() && components::IsManagedByNvidia(label->second);
}

kube::KeptFields KeptFieldsOfNodes() {
  const auto none = [](std::string_view) { return false; };
  return {.label =
              [](std::string_view key) {
                return key == names::kLabelGpuPresent || key == names::kLabelDeployDevicePlugin;
              },
          .annotation = none,
          .resource = none};
}

Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, GpuNodeState* out) {
  kube::NodeObject node;
  RETURN_IF_ERROR(kube::DecodeObject(raw, kept, &node));
  out->meta = std::move(node.meta);
  out->ready = node.ready;
  if (raw.json() != nullptr) {
    return Error(Code::kInvalidArgument, "node {} is not in protobuf", out->meta.name);
  }
  WireReader reader(raw.message());
  while (reader.Next()) {
    if (reader.field() == 3) RETURN_IF_ERROR(ReadNodeConditions(reader.Bytes(), out));
  }
  return reader.status().Annotate("node " + out->meta.name);
}

void AgentPodState::Prepare(kube::ListQuery* query) {
  query->type = kube::kPods;
  query->encoding = kube::Encoding::kProtobuf;
}

Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, AgentPodState* out) {
  if (raw.json() != nullptr) return Error(Code::kInvalidArgument, "a pod is not in protobuf");
  kube::PodObject pod;
  RETURN_IF_ERROR(kube::DecodeObject(raw, kept, &pod));
  out->meta = std::move(pod.meta);
  out->node_name = std::move(pod.node_name);
  WireReader reader(raw.message());
  while (reader.Next()) {
    if (reader.field() == 3) RETURN_IF_ERROR(ReadPodStatus(reader.Bytes(), out));
  }
  return reader.status().Annotate("pod " + out->meta.name);
}

void NodeHealthCollector::AddPod(const AgentPodState& pod) {
  // During an update a node has a new pod and an old pod that is being deleted.
  const auto [entry, is_new] = pods_.emplace(pod.node_name, &pod);
  if (!is_new && entry->second->meta.deleting) entry->second = &pod;
}

void NodeHealthCollector::AddProblem(const std::string& node, std::string reason,
                                     const std::string& message) {
  ++summary_.problem_count;
  const std::string_view remedy = RemedyFor(reason);
  std::string text = message;
  if (!remedy.empty()) text.append(text.empty() ? "" : ": ").append(remedy);
  NodeProblem problem{node, std::move(reason), std::move(text)};
  auto& problems = summary_.problems;
  const auto by_name = [](const NodeProblem& a, const NodeProblem& b) { return a.node < b.node; };
  problems.insert(std::upper_bound(problems.begin(), problems.end(), problem, by_name), problem);
  if (problems.size() > kMaxProblems) problems.pop_back();
}

void NodeHealthCollector::AddNode(const GpuNodeState& node) {
  ++summary_.total;
  if (node.has_gpus()) ++summary_.with_gpus;
  if (node.managed_by_nvidia()) ++summary_.managed_by_nvidia;
  if (excludes_nvidia_nodes_ && node.managed_by_nvidia()) return;
  const std::string& name = node.meta.name;
  const auto found = pods_.find(name);
  const AgentPodState* pod = found == pods_.end() ? nullptr : found->second;
  if (!node.ready) {
    if (pod != nullptr || node.has_gpus())
      AddProblem(name, "NodeNotReady", "the node is not ready");
    return;
  }
  if (pod == nullptr) {
    if (node.has_gpus()) AddProblem(name, "NoAgent", "the node has GPUs, but no agent runs on it");
    return;
  }
  if (!pod->ready) return AddProblem(name, pod->reason, pod->message);
  if (!node.gpu_reason.empty() && !node.gpu_ready) {
    return AddProblem(name, node.gpu_reason, node.gpu_message);
  }
  if (node.has_gpus() && node.gpu_ready) ++summary_.ready;
}

NodeHealth NodeHealthCollector::Take() { return std::move(summary_); }

std::string_view RemedyFor(std::string_view reason) {
  constexpr std::pair<std::string_view, std::string_view> kRemedies[] = {
      {"ImagePullBackOff", "check spec.image and that the node reaches the registry"},
      {"ErrImagePull", "check spec.image and that the node reaches the registry"},
      {"ErrImageNeverPull", "load the image on the node, or set spec.image.pullPolicy"},
      {"InvalidImageName", "correct spec.image"},
      {"CrashLoopBackOff", "read the pod's log: kubectl -n tessera-system logs POD --previous"},
      {"CreateContainerConfigError", "create what the pod refers to, see kubectl describe pod"},
      {"Unschedulable", "make room on the node, or add a toleration to spec.daemonsets"},
      {"AgentNotReady", "see kubectl -n tessera-system describe pod of this node's agent"},
      {"NodeNotReady", "see kubectl describe node"},
      {"NoAgent", "check spec.daemonsets.nodeSelector and spec.daemonsets.tolerations"},
  };
  for (const auto& [known, remedy] : kRemedies) {
    if (known == reason) return remedy;
  }
  return "";
}

}  // namespace tessera::operators
