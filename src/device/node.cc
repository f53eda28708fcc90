// SPDX-License-Identifier: Apache-2.0
#include "src/device/node.h"

#include "src/device/model.h"
#include "src/device/node_annotation.h"

namespace tessera::device {
namespace {

std::string ValueOr(const StringMap& map, std::string_view key, std::string_view default_value) {
  const auto found = map.find(key);
  return found == map.end() ? std::string(default_value) : found->second;
}

// The short model that all GPUs have; empty if they differ.
std::string CommonModel(const NodeInventory& inventory) {
  if (inventory.gpus.empty()) return {};
  const std::string& first = inventory.gpus.front().model;
  std::string common = ShortModel(first);
  for (const Gpu& gpu : inventory.gpus) {
    if (gpu.model != first && ShortModel(gpu.model) != common) return {};
  }
  return common;
}

Result<Node> Parse(const NodeFields& object, const NodeLabelKeys& keys) {
  Node node{.name = object.name};
  Result<MilliCpu> cpu = ParseCpu(ValueOr(object.allocatable, "cpu", "0"));
  if (!cpu.ok()) return cpu.status().Annotate("allocatable cpu");
  node.cpu = *cpu;
  Result<Bytes> memory = ParseMemory(ValueOr(object.allocatable, "memory", "0"));
  if (!memory.ok()) return memory.status().Annotate("allocatable memory");
  node.memory = *memory;
  NodeInventory inventory;
  if (const auto text = object.annotations.find(names::kAnnotationDevices);
      text != object.annotations.end()) {
    Result<NodeInventory> decoded = DecodeNodeInventory(text->second);
    if (!decoded.ok()) return decoded.status().Annotate(names::kAnnotationDevices);
    inventory = *std::move(decoded);
  }
  node.pool = ValueOr(object.labels, keys.pool, "");
  node.model = ValueOr(object.labels, keys.model, CommonModel(inventory));
  node.inventory = SharedInventory(std::move(inventory));
  return node;
}

}  // namespace

Result<Node> ParseNode(const NodeFields& object, const NodeLabelKeys& keys) {
  return Parse(object, keys).Annotate(fmt::format("node {}", object.name));
}

std::string ShortModelOf(const NodeInventory& inventory) {
  std::string model;
  std::string_view last_model;  // usually all GPUs of a node have the same model
  for (const Gpu& gpu : inventory.gpus) {
    if (!model.empty() && gpu.model == last_model) continue;
    last_model = gpu.model;
    const std::string short_model = ShortModel(gpu.model);
    model = model.empty() || model == short_model ? short_model : "mixed";
  }
  return model;
}

}  // namespace tessera::device
