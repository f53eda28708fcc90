// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_publisher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/device/model.h"
#include "src/device/node_annotation.h"
#include "src/kube/client.h"
#include "src/kube/config.h"

namespace tessera::agent {
namespace {

void Set(StringChanges* changes, std::string_view name, std::optional<std::string> value) {
  (*changes)[std::string(name)] = std::move(value);
}

std::string TextOf(const PublishedNode& state) {
  std::string text;
  for (const StringChanges* changes : {&state.labels, &state.annotations}) {
    for (const auto& [name, value] : *changes) {
      text.append(name).append(value ? "=" : "-").append(value.value_or("")).append("\n");
    }
  }
  text.append(state.smoke_passed ? "passed " : "");
  return text.append(state.condition.reason).append(" ").append(state.condition.message);
}

// Empty if the GPUs are of several models.
std::string LegacyModelOf(const device::NodeInventory& inventory) {
  if (inventory.gpus.empty()) return {};
  const std::string& model = inventory.gpus.front().model;
  const bool same_model = std::all_of(inventory.gpus.begin(), inventory.gpus.end(),
                                      [&](const device::Gpu& gpu) { return gpu.model == model; });
  if (!same_model) return {};
  std::string legacy = device::GpuManagerModel(model);
  return legacy.empty() ? device::ShortModel(model) : legacy;
}

// Whether the label exists and has another owner, by the managed fields.
bool HasOtherOwner(const Json& node, std::string_view label) {
  if (FindPath(node, {"metadata", "labels", label}) == nullptr) return false;
  const std::string field = fmt::format("f:{}", label);
  return std::ranges::none_of(ItemsAt(node, {"metadata", "managedFields"}), [&](const Json& entry) {
    return TextAt(entry, {"manager"}) == names::kAgent &&
           FindPath(entry, {"fieldsV1", "f:metadata", "f:labels", field}) != nullptr;
  });
}

// A merge patch from `current` to `wanted`; nothing if they are equal.
std::optional<Json> MergePatchFor(const Json* current, const StringChanges& wanted) {
  Json changes = Json::MakeObject();
  for (const auto& [name, value] : wanted) {
    const Json* found = current != nullptr ? current->Find(name) : nullptr;
    if (value && found != nullptr && found->is_string() && found->string_value() == *value) {
      continue;
    }
    if (!value && (found == nullptr || found->is_null())) continue;
    changes.Set(name, value ? Json::String(*value) : Json());
  }
  if (changes.members().empty()) return std::nullopt;
  return changes;
}

// The merge patch that brings the metadata of `node` to `state`; nullopt if `node` has it.
std::optional<Json> PatchFor(const Json& node, const PublishedNode& state) {
  Json metadata = Json::MakeObject();
  StringChanges wanted = state.labels;
  if (HasOtherOwner(node, names::kLabelLegacyGpuModel))
    wanted.erase(std::string(names::kLabelLegacyGpuModel));
  if (auto labels = MergePatchFor(FindPath(node, {"metadata", "labels"}), wanted)) {
    metadata.Set("labels", *labels);
  }
  if (auto annotations =
          MergePatchFor(FindPath(node, {"metadata", "annotations"}), state.annotations)) {
    metadata.Set("annotations", *annotations);
  }
  if (metadata.members().empty()) return std::nullopt;
  return Json::MakeObject({{"metadata", std::move(metadata)}});
}

class KubeNodeApi final : public NodeApi {
 public:
  KubeNodeApi(net::IoThread* io, TaskRunner* runner, kube::Config config, std::string node)
      : client_(*io, *runner, std::move(config), Options()), node_(std::move(node)) {}

  void Get(Done done) override { operation_ = client_.Get(kube::Node(node_), std::move(done)); }
  void MergePatch(const Json& patch, Done done) override {
    Patch(kube::Node(node_), kube::PatchKind::kMerge, patch, std::move(done));
  }
  // A strategic merge patch, because conditions have the merge key "type" (NodeStatus in
  // k8s.io/api/core/v1): those of the kubelet stay. A JSON merge patch would replace the whole
  // list.
  void PatchStatus(const Json& patch, Done done) override {
    Patch(kube::NodeStatus(node_), kube::PatchKind::kStrategicMerge, patch, std::move(done));
  }
  void JsonPatch(const Json& patch, Done done) override {
    Patch(kube::Node(node_), kube::PatchKind::kJson, patch, std::move(done));
  }
  void CreateEvent(const Json& event, Done done) override {
    const kube::ObjectRef collection{kube::kEvents, "", std::string(kNodeEventNamespace), ""};
    operation_ = client_.Create(collection, event, std::move(done));
  }

 private:
  static kube::ClientOptions Options() {
    kube::ClientOptions options = kube::ClientOptionsFor(names::kAgent);
    options.max_in_flight = 1;
    return options;
  }
  void Patch(const kube::ObjectRef& object, kube::PatchKind kind, const Json& patch, Done done) {
    operation_ = client_.Patch(object, kind, patch, {.field_manager = std::string(names::kAgent)},
                               std::move(done));
  }

  kube::Client client_;
  const std::string node_;
  kube::Operation operation_;  // the publisher starts one operation at a time
};

}  // namespace

PublishedNode StateOf(const device::NodeInventory& inventory, const NodeHardware& hardware,
                      const NodeFindings& findings) {
  PublishedNode state;
  state.condition = ConditionOf(inventory, findings);
  state.smoke_passed = findings.smoke_passed;
  Result<std::string> annotation = device::EncodeNodeInventory(inventory);
  if (annotation.ok()) {
    Set(&state.annotations, names::kAnnotationDevices, std::move(*annotation));
  } else {
    Log(Severity::kError, "cannot describe the GPUs in an annotation",
        {{"error", annotation.status().ToString()}});
  }
  const bool has_problem = !inventory.problem.empty();
  if (has_problem && hardware.HasGpu()) {
    Set(&state.labels, names::kLabelGpuPresent, "true");
    return state;
  }
  // GPUs that a lost driver reported may be gone.
  const device::NodeInventory present = has_problem ? device::NodeInventory() : inventory;
  state.labels = FeatureLabels(present, hardware);
  std::string legacy_model = LegacyModelOf(present);
  Set(&state.labels, names::kLabelLegacyGpuModel,
      legacy_model.empty() ? std::nullopt : std::optional(std::move(legacy_model)));
  return state;
}

NodePublisher::NodePublisher(TaskRunner* runner, NodeApi* api, NodeMetrics* metrics,
                             ReadHardware read_hardware)
    : runner_(runner), api_(api), metrics_(metrics), read_hardware_(std::move(read_hardware)) {}

void NodePublisher::Publish(const device::NodeInventory& inventory, const NodeFindings& findings) {
  inventory_ = inventory;
  state_ = StateOf(inventory, read_hardware_(), findings);
  changed_ = busy_;
  if (!busy_) UpdateNode();
}

void NodePublisher::Recheck() {
  if (!inventory_) return;
  stale_ = busy_;
  changed_ |= busy_;
  written_state_.clear();
  if (!busy_) UpdateNode();
}

void NodePublisher::UpdateNode() {
  if (TextOf(state_) == written_state_) return;
  busy_ = true;
  api_->Get(Then([this](const Json& node) {
    PlanFor(node);
    WriteMetadata();
  }));
}

void NodePublisher::PlanFor(const Json& node) {
  if (on_node_) on_node_(node);
  patches_ = {};
  patches_.text = TextOf(state_);
  patches_.condition = state_.condition;
  patches_.metadata = PatchFor(node, state_);
  const bool lacks_gpu = !inventory_->problem.empty() || inventory_->gpus.empty();
  // A node with a startup taint gets the condition even if no GPU was ever found, so that the
  // condition explains the wait.
  std::optional<Json> taints = TaintPatchFor(node, startup_taints_);
  if (lacks_gpu && !taints && !WasGpuNode(node) && !read_hardware_().HasGpu()) return;
  if (state_.smoke_passed) patches_.taints = std::move(taints);
  const WallTime now = runner_->clock().WallNow();
  patches_.status = ConditionPatchFor(node, state_.condition, now);
  // Without a driver the number of GPUs is unknown.
  const auto count = inventory_->problem.empty() ? GpuCountPatchFor(node, inventory_->gpus.size())
                                                 : std::optional<Json>();
  if (count && patches_.status) {
    for (const auto& [part, value] : count->Find("status")->members()) {
      (*patches_.status->EnsureObject("status"))->Set(part, value);
    }
  } else if (count) {
    patches_.status = count;
  }
  for (const NodeEvent& event : EventsBetween(InventoryOn(node), *inventory_)) {
    event_time_ = std::max(now, event_time_ + std::chrono::nanoseconds(1));
    patches_.events.push_back(EventObject(node, event, event_time_));
  }
}

void NodePublisher::WriteMetadata() {
  if (!patches_.metadata) return WriteStatus();
  api_->MergePatch(*patches_.metadata, Counted(Then([this](const Json&) {
    Log(Severity::kInfo, "wrote the node's labels and annotation");
    // The Events describe the changes from the Node's earlier state, which this write has replaced.
    // They cannot be computed again, so they are queued now.
    for (Json& event : patches_.events) {
      if (TakeEventToken()) events_.push_back(std::move(event));
    }
    WriteStatus();
  })));
}

void NodePublisher::WriteStatus() {
  if (!patches_.status) return RemoveTaints();
  api_->PatchStatus(*patches_.status, Counted(Then([this](const Json&) {
    Log(Severity::kInfo, "wrote the node's condition",
        {{"reason", patches_.condition.reason}, {"message", patches_.condition.message}});
    RemoveTaints();
  })));
}

// This is the last write, so that pods that the scheduler places afterwards find a published node.
void NodePublisher::RemoveTaints() {
  if (!patches_.taints) return WriteEvents();
  api_->JsonPatch(*patches_.taints, Counted(Then([this](const Json&) {
    Log(Severity::kInfo, "removed the node's startup taint: its GPUs passed the smoke test");
    WriteEvents();
  })));
}

void NodePublisher::WriteEvents() {
  if (events_.empty()) return Finish();
  const Json event = std::move(events_.front());
  events_.erase(events_.begin());
  api_->CreateEvent(event, [this, weak = weak_.Get()](const Result<Json>& created) {
    if (!weak) return;
    if (!created.ok()) {
      Log(Severity::kWarning, "cannot record an Event on the Node, dropping it",
          {{"error", created.status().ToString()}});
    }
    WriteEvents();
  });
}

void NodePublisher::Finish() {
  written_state_ = std::exchange(stale_, false) ? "" : patches_.text;
  pause_ = kFirstPause;
  busy_ = false;
  if (std::exchange(changed_, false)) UpdateNode();
}

NodeApi::Done NodePublisher::Counted(NodeApi::Done done) {
  return
      [metrics = metrics_, done = std::move(done), weak = weak_.Get()](const Result<Json>& answer) {
        if (!weak) return;
        metrics->node_writes.Add(InfoOf(answer.status().code()).name);
        done(answer);
      };
}

NodeApi::Done NodePublisher::Then(std::function<void(const Json&)> next) {
  return [this, next = std::move(next), weak = weak_.Get()](const Result<Json>& answer) {
    if (!weak) return;
    if (!answer.ok()) return ScheduleRetry(answer.status());
    next(*answer);
  };
}

bool NodePublisher::TakeEventToken() {
  const MonotonicTime now = runner_->clock().Now();
  const auto earned = (now - event_tokens_at_) / kEventInterval;
  if (earned > 0) {
    event_tokens_ = static_cast<int>(std::min<int64_t>(kMaxEventBurst, event_tokens_ + earned));
    event_tokens_at_ = now;
  }
  if (event_tokens_ == 0) {
    Log(Severity::kWarning, "too many Events on the Node, dropping one");
    return false;
  }
  --event_tokens_;
  return true;
}

void NodePublisher::ScheduleRetry(const Status& status) {
  Log(Severity::kWarning, "cannot publish the GPUs on the Node, retrying",
      {{"error", status.ToString()},
       {"in_s", std::chrono::duration_cast<std::chrono::seconds>(pause_).count()}});
  // Earlier writes of this attempt may have succeeded, so the state of the server is unknown.
  written_state_.clear();
  runner_->PostDelayed(pause_, [this, weak = weak_.Get()] {
    if (!weak) return;
    busy_ = false;
    changed_ = false;
    UpdateNode();
  });
  pause_ = std::min(pause_ * 2, Duration(kLongestPause));
}

Result<std::unique_ptr<NodeApi>> ConnectNodeApi(net::IoThread* io, TaskRunner* runner,
                                                const std::string& kubeconfig,
                                                const std::string& node_name) {
  ASSIGN_OR_RETURN(kube::Config config, kube::FindConfig(kubeconfig));
  return std::unique_ptr<NodeApi>(new KubeNodeApi(io, runner, std::move(config), node_name));
}

}  // namespace tessera::agent
