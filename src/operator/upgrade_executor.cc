// SPDX-License-Identifier: Apache-2.0
#include "src/operator/upgrade_executor.h"

#include <optional>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"

namespace tessera::operators {
namespace {

using driver::UpgradeAction;
using driver::UpgradeState;

Json ChangesJson(const StringChanges& changes) {
  Json json = Json::MakeObject();
  for (const auto& [name, value] : changes) json.Set(name, value ? Json::String(*value) : Json());
  return json;
}

// The state that the node enters with this action; nullopt: none.
std::optional<UpgradeState> EnteredState(const UpgradeAction& action) {
  const auto label = action.labels.find(names::kLabelUpgradeState);
  if (label == action.labels.end()) return std::nullopt;
  return driver::UpgradeStateFromName(label->second.value_or(""));
}

bool PinsRevision(const UpgradeAction& action) {
  const auto label = action.labels.find(names::kLabelDriverRevision);
  return label != action.labels.end() && label->second.has_value();
}

// A merge patch that the API server rejects if the Node no longer has this resourceVersion.
Json NodePatchOf(const StringChanges& labels, const StringChanges& annotations,
                 const std::string& resource_version) {
  Json metadata = Json::MakeObject({{"resourceVersion", Json::String(resource_version)}});
  if (!labels.empty()) metadata.Set("labels", ChangesJson(labels));
  if (!annotations.empty()) metadata.Set("annotations", ChangesJson(annotations));
  return Json::MakeObject({{"metadata", std::move(metadata)}});
}

// Like the patch above, with the cordon or uncordon of the action.
Json NodePatchOf(const UpgradeAction& action, const std::string& resource_version) {
  Json patch = NodePatchOf(action.labels, action.annotations, resource_version);
  const bool cordons = action.kind == UpgradeAction::Kind::kCordon;
  if (cordons || action.kind == UpgradeAction::Kind::kUncordon) {
    patch.Set("spec", Json::MakeObject({{"unschedulable", cordons ? Json::Bool(true) : Json()}}));
  }
  return patch;
}

// The reason of the Event, in camel case: DriverUpgradeCordoned, DriverRolledBack.
std::string EventReasonOf(const UpgradeAction& action) {
  if (PinsRevision(action)) return "DriverRolledBack";
  if (action.warning) return "DriverUpgradeFailed";
  switch (action.kind) {
    case UpgradeAction::Kind::kCordon:
      return "DriverUpgradeCordoned";
    case UpgradeAction::Kind::kUncordon:
      return "DriverUpgradeUncordoned";
    case UpgradeAction::Kind::kEvict:
      return "DriverUpgradeEvicts";
    case UpgradeAction::Kind::kDeletePod:
      return "DriverUpgradeDeletes";
    case UpgradeAction::Kind::kPatchNode:
      break;
  }
  const auto state = EnteredState(action);
  if (state == UpgradeState::kUpgradeRequired) return "DriverUpgradeRequired";
  if (state == UpgradeState::kDone) return "DriverUpToDate";
  if (state == UpgradeState::kFailed) return "DriverUpgradeFailed";
  return "DriverUpgrade";
}

// The result of a node's upgrade that ends with this action, for the metric: done, failed,
// rolled_back; "": the upgrade continues. `before`: the node's state before the action.
std::string_view UpgradeResultOf(const UpgradeAction& action, UpgradeState before) {
  if (PinsRevision(action)) return "rolled_back";
  const auto state = EnteredState(action);
  if (state == UpgradeState::kDone) {
    return before == UpgradeState::kUncordonRequired ? "done" : "";
  }
  return state == UpgradeState::kFailed ? "failed" : "";
}

}  // namespace

UpgradeExecutor::UpgradeExecutor(ClusterAccess access, const FleetReader& reader,
                                 Delegate& delegate)
    : access_(std::move(access)), reader_(reader), delegate_(delegate) {}

void UpgradeExecutor::Patch(const driver::NodePatch& patch) {
  wanted_writes_.insert(patch.node);
  if (!MayWrite(patch.node)) return;
  Send(patch.node,
       NodePatchOf(patch.labels, patch.annotations, reader_.ResourceVersionOf(patch.node)),
       nullptr);
}

void UpgradeExecutor::Execute(const UpgradeAction& action, const driver::UpgradeNode& node) {
  if (action.pod.empty()) wanted_writes_.insert(node.name);
  if (!MayWrite(node.name)) return;
  if (!action.pod.empty()) return ExecuteOnPod(action);
  const UpgradeState before = driver::StateOfNode(node).value_or(UpgradeState::kUnknown);
  Send(node.name, NodePatchOf(action, reader_.ResourceVersionOf(node.name)),
       [this, action, before] {
         Record(action);
         const std::string_view result = UpgradeResultOf(action, before);
         if (!result.empty()) access_.metrics.driver_upgrades.Add(result);
       });
}

bool UpgradeExecutor::EndPass() {
  const std::set<std::string> wanted = std::exchange(wanted_writes_, {});
  return std::erase_if(errors_, [&](const auto& error) { return !wanted.contains(error.first); }) >
         0;
}

bool UpgradeExecutor::MayWrite(const std::string& node) {
  const auto entry = patched_versions_.find(node);
  if (entry == patched_versions_.end()) return true;
  if (entry->second.empty() || entry->second == reader_.ResourceVersionOf(node)) return false;
  patched_versions_.erase(entry);
  return true;
}

void UpgradeExecutor::Send(const std::string& node, const Json& patch,
                           std::function<void()> on_written) {
  const std::string old_version = reader_.ResourceVersionOf(node);
  patched_versions_[node] = "";
  operations_[node] = access_.client.Patch(
      kube::Node(node), kube::PatchKind::kMerge, patch,
      {.field_manager = std::string(names::kOperator), .before_send = access_.before_send},
      [this, node, old_version, on_written = std::move(on_written)](const Result<Json>& answer) {
        OnNodeAnswer(node, old_version, answer);
        if (answer.ok() && on_written) on_written();
      });
}

void UpgradeExecutor::OnNodeAnswer(const std::string& node, const std::string& old_version,
                                   const Result<Json>& answer) {
  patched_versions_.erase(node);
  if (answer.ok()) {
    const Json* metadata = answer->Find("metadata");
    const bool same =
        metadata == nullptr || metadata->StringAt("resourceVersion").value_or("") == old_version;
    if (!same && reader_.ResourceVersionOf(node) == old_version)
      patched_versions_[node] = old_version;
  }
  // After a conflict the watch delivers the newer version, for which a new step is decided.
  const Code code = answer.status().code();
  if (code == Code::kAborted || code == Code::kNotFound) return delegate_.OnNodeWritten();
  const bool had_error = errors_.erase(node) > 0;
  if (!answer.ok()) {
    const Status error = answer.status().Annotate("node " + node);
    Log(Severity::kWarning, "cannot write a node, retrying", {{"error", error.ToString()}});
    errors_[node] = error;
  }
  if (had_error || !answer.ok()) delegate_.OnWriteError();
  if (answer.ok()) delegate_.OnNodeWritten();
}

void UpgradeExecutor::ExecuteOnPod(const UpgradeAction& action) {
  const Status may_write = access_.before_send ? access_.before_send() : Status::Ok();
  const std::string key = kube::KeyOf(action.ns, action.pod);
  if (!may_write.ok() || !pods_in_flight_.insert(key).second) return;
  const auto on_done = [this, action, key](const Result<Json>& answer) {
    pods_in_flight_.erase(key);
    OnPodAnswer(action, answer.status());
  };
  if (action.kind == UpgradeAction::Kind::kEvict) {
    operations_[key] =
        access_.client.Evict(action.ns, action.pod, {}, on_done, access_.before_send);
    return;
  }
  const DriverPodState* driver_pod = reader_.FindDriverPod(key);
  operations_[key] =
      access_.client.Delete(kube::Pod(action.ns, action.pod),
                            {.uid = driver_pod == nullptr ? Uid() : driver_pod->meta.uid}, on_done);
}

void UpgradeExecutor::OnPodAnswer(const UpgradeAction& action, const Status& status) {
  if (action.kind == UpgradeAction::Kind::kEvict) {
    const bool rejected = status.code() == Code::kResourceExhausted;
    access_.metrics.driver_evictions.Add(status.ok() ? "accepted"
                                         : rejected  ? "rejected"
                                                     : "failed");
  }
  if (status.ok()) {
    Record(action);
  } else if (status.code() != Code::kNotFound && status.code() != Code::kAborted) {
    UpgradeAction rejected_action = action;
    rejected_action.warning = true;
    rejected_action.reason = status.message();  // names a disruption budget, if that is the reason
    Record(rejected_action, "DriverUpgradeWaitsForPod");
  }
  delegate_.OnPodAnswer();
}

void UpgradeExecutor::Record(const UpgradeAction& action, std::string_view reason) {
  const DriverNodeState* node = reader_.FindNode(action.node);
  const std::string why = reason.empty() ? EventReasonOf(action) : std::string(reason);
  const std::string text = action.pod.empty()
                               ? action.reason
                               : fmt::format("pod {}/{}: {}", action.ns, action.pod, action.reason);
  Log(action.warning ? Severity::kWarning : Severity::kInfo, "driver upgrade",
      {{"node", action.node}, {"event", why}, {"what", text}});
  access_.events.Record(
      {.kind = "Node", .name = action.node, .uid = node == nullptr ? Uid() : node->meta.uid},
      action.warning ? kube::EventKind::kWarning : kube::EventKind::kNormal, why, text);
}

}  // namespace tessera::operators
