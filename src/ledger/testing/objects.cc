// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/testing/objects.h"

#include <fmt/format.h>

#include "api/names.h"
#include "src/device/node_annotation.h"
#include "src/device/quantity.h"

namespace tessera::ledger::testing {

std::string UuidOf(std::string_view node, int position) {
  return fmt::format("GPU-{}-{}", node, position);
}

kube::NodeObject GpuNode(const std::string& name, int gpus, std::string_view gpu_memory,
                         std::string_view cpu) {
  device::NodeInventory inventory{.driver_version = "550.163.01", .cuda_version = 12040};
  for (int i = 0; i < gpus; ++i) {
    inventory.gpus.push_back({.uuid = UuidOf(name, i),
                              .index = i,
                              .minor = i,
                              .model = "NVIDIA A100-SXM4-80GB",
                              .memory = device::ParseMemory(gpu_memory).value()});
  }
  inventory.links = device::LinkMatrix(inventory.gpus.size());
  kube::NodeObject node{.meta = {.name = name, .uid = Uid("uid-" + name)}, .ready = true};
  node.meta.annotations[std::string(names::kAnnotationDevices)] =
      device::EncodeNodeInventory(inventory).value();
  node.allocatable = {{"cpu", std::string(cpu)}, {"memory", "1Ti"}};
  node.capacity = node.allocatable;
  return node;
}

kube::PodObject GpuPod(const std::string& name,
                       const std::map<std::string_view, std::string>& limits) {
  kube::PodObject pod{.meta = {.name = name, .ns = "ns", .uid = Uid("uid-" + name)},
                      .phase = kube::PodPhase::kPending};
  kube::Container container{.name = "main"};
  for (const auto& [resource, amount] : limits) {
    container.limits.emplace(resource, amount);
  }
  container.requests = container.limits;
  pod.containers = {container};
  return pod;
}

kube::PodObject Whole(const std::string& name, int gpus) {
  return GpuPod(name, {{names::kResourceGpu, std::to_string(gpus)}});
}

kube::PodObject BoundPod(kube::PodObject pod, const std::string& node,
                         const StringMap& annotations) {
  pod.node_name = node;
  for (const auto& [key, value] : annotations) pod.meta.annotations[key] = value;
  return pod;
}

kube::PodObject Bind(ClusterLedger& ledger, const kube::PodObject& pod, const std::string& node) {
  const auto query = ledger.MakeQuery(pod).value();
  const auto assumed = ledger.Assume(query, node, std::chrono::seconds(1)).value();
  kube::PodObject bound = BoundPod(pod, node, assumed.annotations);
  ledger.SetPod(bound);
  return bound;
}

}  // namespace tessera::ledger::testing
