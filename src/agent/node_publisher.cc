// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node_publisher.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/device/node_annotation.h"

namespace tessera::agent {
namespace {

constexpr size_t kMaxLabelValue = 63;

bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

void Set(NodeFacts* facts, std::string_view name, std::optional<std::string> value) {
  (*facts)[std::string(name)] = std::move(value);
}

// Of the models, the one with most GPUs; the first by name among equals.
struct Group {
  std::string model;
  int count = 0;
  Bytes memory;
};

Group LargestGroup(const device::NodeInventory& inventory) {
  std::map<std::string, Group> groups;
  for (const device::Gpu& gpu : inventory.gpus) {
    Group& group = groups[gpu.model];
    group.model = gpu.model;
    group.memory = std::max(group.memory, gpu.memory);
    ++group.count;
  }
  Group largest;
  for (const auto& [model, group] : groups) {
    if (group.count > largest.count) largest = group;
  }
  return largest;
}

std::string TextOf(const NodeState& state) {
  std::string text;
  for (const NodeFacts* facts : {&state.labels, &state.annotations}) {
    for (const auto& [name, value] : *facts) {
      text.append(name).append(value ? "=" : "-").append(value.value_or("")).append("\n");
    }
  }
  return text;
}

// The differences between what is there and what is wanted; nothing where there are none.
std::optional<Json> Differences(const Json* there, const NodeFacts& wanted) {
  Json changes = Json::MakeObject();
  for (const auto& [name, value] : wanted) {
    const Json* current = there != nullptr ? there->Find(name) : nullptr;
    if (value && current != nullptr && current->is_string() && current->string_value() == *value) {
      continue;
    }
    if (!value && (current == nullptr || current->is_null())) continue;
    changes.Set(name, value ? Json::String(*value) : Json());
  }
  if (changes.members().empty()) return std::nullopt;
  return changes;
}

}  // namespace

std::string LabelValue(std::string_view model) {
  std::string value;
  for (const char c : model) {
    if (c == ' ') {
      value += '-';
    } else if (IsAlnum(c) || c == '-' || c == '_' || c == '.') {
      value += c;
    }
  }
  if (value.size() > kMaxLabelValue) value.resize(kMaxLabelValue);
  while (!value.empty() && !IsAlnum(value.back())) value.pop_back();
  value.erase(0, std::distance(value.begin(), std::find_if(value.begin(), value.end(), IsAlnum)));
  return value;
}

NodeState StateOf(const device::NodeInventory& inventory) {
  NodeState state;
  Result<std::string> annotation = device::EncodeNodeInventory(inventory);
  if (annotation.ok()) {
    Set(&state.annotations, names::kAnnotationDevices, std::move(*annotation));
  } else {
    Log(Severity::kError, "cannot describe the GPUs in an annotation",
        {{"error", annotation.status().ToString()}});
  }
  if (!inventory.problem.empty()) return state;
  const Group group = LargestGroup(inventory);
  const bool any = group.count > 0;
  const auto when = [](bool holds, std::string value) {
    return holds && !value.empty() ? std::optional(std::move(value)) : std::nullopt;
  };
  Set(&state.labels, names::kLabelGpuPresent, when(any, "true"));
  Set(&state.labels, names::kLabelGpuCount, when(any, std::to_string(group.count)));
  Set(&state.labels, names::kLabelGpuProduct, when(any, LabelValue(group.model)));
  // Left out where the driver does not tell the memory, as on integrated GPUs.
  const bool memory = any && group.memory > Bytes(0);
  Set(&state.labels, names::kLabelGpuMemory, when(memory, std::to_string(ToMiB(group.memory))));
  return state;
}

std::optional<Json> PatchFor(const Json& node, const NodeState& state) {
  const Json* there = node.Find("metadata");
  const auto find = [&](std::string_view key) {
    return there != nullptr ? there->Find(key) : nullptr;
  };
  Json metadata = Json::MakeObject();
  if (auto labels = Differences(find("labels"), state.labels)) metadata.Set("labels", *labels);
  if (auto annotations = Differences(find("annotations"), state.annotations)) {
    metadata.Set("annotations", *annotations);
  }
  if (metadata.members().empty()) return std::nullopt;
  Json patch = Json::MakeObject();
  patch.Set("metadata", std::move(metadata));
  return patch;
}

NodePublisher::NodePublisher(TaskRunner* runner, NodeApi* api, AgentMetrics* metrics)
    : runner_(runner),
      api_(api),
      metrics_(metrics),
      self_(std::make_shared<NodePublisher*>(this)) {}

NodePublisher::~NodePublisher() = default;

void NodePublisher::Publish(const device::NodeInventory& inventory) {
  wanted_ = StateOf(inventory);
  changed_ = busy_;
  if (!busy_) Work();
}

void NodePublisher::Work() {
  if (TextOf(*wanted_) == written_) return;
  busy_ = true;
  api_->Get([this, weak = std::weak_ptr<NodePublisher*>(self_)](const Result<Json>& node) {
    if (!weak.expired()) OnNode(node);
  });
}

void NodePublisher::OnNode(const Result<Json>& node) {
  if (!node.ok()) return TryLater(node.status());
  const std::optional<Json> patch = PatchFor(*node, *wanted_);
  const std::string text = TextOf(*wanted_);
  if (!patch) {
    written_ = text;
    return OnPatched(Status::Ok());
  }
  api_->MergePatch(*patch, [this, text, weak = std::weak_ptr<NodePublisher*>(self_)](
                               const Result<Json>& patched) {
    if (weak.expired()) return;
    metrics_->node_writes.Add(InfoOf(patched.status().code()).name);
    if (patched.ok()) {
      written_ = text;
      Log(Severity::kInfo, "wrote the node's labels and annotation");
    }
    OnPatched(patched.status());
  });
}

void NodePublisher::OnPatched(const Status& status) {
  if (!status.ok()) return TryLater(status);
  pause_ = kFirstPause;
  busy_ = false;
  if (std::exchange(changed_, false)) Work();
}

void NodePublisher::TryLater(const Status& status) {
  Log(Severity::kWarning, "cannot write the node's labels and annotation, trying again",
      {{"error", status.ToString()},
       {"in_s", std::chrono::duration_cast<std::chrono::seconds>(pause_).count()}});
  runner_->PostDelayed(pause_, [this, weak = std::weak_ptr<NodePublisher*>(self_)] {
    if (weak.expired()) return;
    busy_ = false;
    changed_ = false;
    Work();
  });
  pause_ = std::min(pause_ * 2, Duration(kLongestPause));
}

}  // namespace tessera::agent
