// SPDX-License-Identifier: Apache-2.0
#include "src/operator/upgrade_executor.h"

#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/operator/driver_actions.h"

namespace tessera::operators {

using driver::UpgradeAction;

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
  const driver::UpgradeState before =
      driver::StateOfNode(node).value_or(driver::UpgradeState::kUnknown);
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
