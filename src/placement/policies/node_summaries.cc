// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/node_summaries.h"

#include <algorithm>
#include <bit>

#include "src/placement/linked_groups.h"

namespace tessera::placement {

bool NodeSummaries::Sync() {
  if (version_ != cluster_.version()) {
    const bool incremental = cluster_.ChangesSince(version_, &changed_);
    nodes_.resize(cluster_.size());
    const size_t count = incremental ? changed_.size() : cluster_.size();
    const auto at = [&](size_t i) { return incremental ? changed_[i] : static_cast<NodeId>(i); };
    for (size_t i = 0; i < count; ++i) forecast_.OnNodeChanged(cluster_.node(at(i)));
    for (size_t i = 0; i < count; ++i) Summarize(at(i));
    version_ = cluster_.version();
  }
  const uint32_t added = forecast_.TakeNewClasses();
  if (added != 0) CountClasses(added);
  return added != 0;
}

void NodeSummaries::CountClasses(uint32_t classes) {
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    for (uint32_t left = classes; left != 0; left &= left - 1) {
      const auto j = static_cast<size_t>(std::countr_zero(left));
      nodes_[id].slots[j] = forecast_.SlotsOn(cluster_.node(id), j);
      forecast_.AddSlots(j, 1, nodes_[id].slots[j]);
    }
  }
  OnTurnoverChanged();
}

void NodeSummaries::OnTurnoverChanged() {
  for (NodeSummary& node : nodes_) UpdateMinFree(node);
}

// The slots of new classes are not in the forecast yet; CountClasses adds them.
void NodeSummaries::Summarize(NodeId id) {
  const NodeView view = cluster_.node(id);
  NodeSummary& node = nodes_[id];
  const size_t classes = forecast_.classes().size();
  const uint32_t known = ~forecast_.new_classes();
  for (size_t j = 0; j < classes; ++j) {
    if (known >> j & 1) forecast_.AddSlots(j, -1, node.slots[j]);
  }
  for (const auto& [model, slack] : node.counted_gpus) forecast_.AddGpu(model, slack, -1);
  auto counted = std::move(node.counted_gpus);  // reuses its allocation
  counted.clear();
  node = {};
  node.counted_gpus = std::move(counted);
  if (!view->present) return;

  std::array<int16_t, kMaxGpusPerNode> slack;
  uint64_t idle = 0;
  const bool schedulable = view->schedulable;
  for (size_t i = 0; i < view.gpus.size(); ++i) {
    const GpuState& gpu = view.gpus[i];
    slack[i] = gpu.slack;
    idle |= uint64_t{gpu.slack == 1000} << i;
    if (!gpu.healthy || gpu.kind != kNoMigProfile) continue;
    ++node.gpus;
    if (!schedulable) continue;
    node.counted_gpus.emplace_back(gpu.model, gpu.slack);
    forecast_.AddGpu(gpu.model, gpu.slack, 1);
  }
  node.idle = std::popcount(idle);
  node.idle_gpus_paired = view->groups != nullptr && view->groups->EachHasPartner(idle);
  for (const uint32_t pods : view->pods_by_size) node.pods += static_cast<int>(pods);
  node.cpu_total = view->cpu_total;
  node.memory_total = view->memory_total;
  node.cpu_free = schedulable ? view->cpu_free : -1;
  node.memory_free = schedulable ? view->memory_free : -1;
  node.key =
      NodeKey::Of(view->model, view->cpu_free, view->memory_free, slack.data(), view.gpus.size());
  for (size_t j = 0; j < classes; ++j) {
    if ((known >> j & 1) == 0) continue;
    node.slots[j] = forecast_.SlotsOn(view, j);
    forecast_.AddSlots(j, 1, node.slots[j]);
  }
  UpdateMinFree(node);
}

void NodeSummaries::UpdateMinFree(NodeSummary& node) const {
  node.near_classes = 0;
  node.min_idle = 0;
  node.min_free_cpu = node.min_free_memory = 0;
  const auto classes = forecast_.classes();
  for (size_t j = 0; j < classes.size(); ++j) {
    const LargeSize& size = classes[j].size;
    const int slots = node.slots[j];
    node.min_idle = std::max(node.min_idle, slots * size.gpus);
    node.min_free_cpu = std::max(node.min_free_cpu, slots * size.cpu_milli);
    node.min_free_memory = std::max(node.min_free_memory, slots * size.memory);
    const bool near = FreeFraction(node, size, FreeIn(node), slots + 1) > 0;
    node.near_classes |= static_cast<uint32_t>(near) << j;
  }
}

// Expected fraction of the next pod lifetime for which the node has `slots` slots if no pod
// arrives. Assumes that all pods on the node hold equal amounts; then the missing resources give
// the number of pods that must leave.
float NodeSummaries::FreeFraction(const NodeSummary& node, const LargeSize& size,
                                  const FreeResources& free, int slots) const {
  if (!turnover_.expects_departures() || node.cpu_free < 0 || node.memory_free < 0 ||
      !size.Allows(node.key.model)) {
    return 0;
  }
  const int gpus = slots * size.gpus;
  const int64_t cpu = slots * size.cpu_milli, memory = slots * size.memory;
  if (gpus > node.gpus || cpu > node.cpu_total || memory > node.memory_total) return 0;
  const auto missing = [](int64_t wanted, int64_t left, int64_t total) {
    return wanted <= left ? 0
                          : static_cast<float>(wanted - left) / static_cast<float>(total - left);
  };
  const float part =
      std::max({missing(gpus, free.idle, node.gpus), missing(cpu, free.cpu, node.cpu_total),
                missing(memory, free.memory, node.memory_total)});
  return turnover_.FreeOf(part * static_cast<float>(free.pods));
}

// Present slots, and the expected fractions of future slots.
float NodeSummaries::ExpectedSlots(const NodeSummary& node, const LargeSize& size,
                                   const FreeResources& free, int slots) const {
  auto sum = static_cast<float>(slots);
  if (!turnover_.expects_departures()) return sum;
  for (int more = slots + 1;; ++more) {
    const float part = FreeFraction(node, size, free, more);
    if (part == 0) return sum;
    sum += part;
  }
}

bool NodeSummaries::TakesSlots(const NodeSummary& node, int idle_taken,
                               const Demand& demand) const {
  return node.near_classes != 0 || node.idle - idle_taken < node.min_idle ||
         node.cpu_free - demand.cpu_milli < node.min_free_cpu ||
         node.memory_free - demand.memory.count() < node.min_free_memory;
}

SlotParts NodeSummaries::SlotsTaken(const NodeSummary& node, int idle_taken, const Demand& demand,
                                    const Slots& own) const {
  const FreeResources rest{.idle = node.idle - idle_taken,
                           .pods = node.pods + 1,
                           .cpu = node.cpu_free - demand.cpu_milli,
                           .memory = node.memory_free - demand.memory.count()};
  SlotParts taken{};
  const auto classes = forecast_.classes();
  for (size_t j = 0; j < classes.size(); ++j) {
    const LargeSize& size = classes[j].size;
    if (node.slots[j] == 0 && (node.near_classes >> j & 1) == 0) continue;
    int left = node.slots[j];
    while (left > 0 && (left * size.gpus > rest.idle || left * size.cpu_milli > rest.cpu ||
                        left * size.memory > rest.memory)) {
      --left;
    }
    const float lost = ExpectedSlots(node, size, FreeIn(node), node.slots[j]) -
                       ExpectedSlots(node, size, rest, left) - static_cast<float>(own[j]);
    taken[j] = static_cast<uint16_t>(std::max(lost * kPartsPerSlot + 0.5f, 0.0f));
  }
  return taken;
}

}  // namespace tessera::placement
