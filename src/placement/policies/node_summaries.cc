// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/node_summaries.h"

#include <algorithm>
#include <bit>

#include "src/placement/linked_groups.h"

namespace tessera::placement {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

}  // namespace

bool NodeSummaries::Sync() {
  if (version_ == cluster_.version()) return false;
  const bool some = cluster_.ChangesSince(version_, &changed_);
  nodes_.resize(cluster_.size());
  slack_.resize(cluster_.size());
  const size_t count = some ? changed_.size() : cluster_.size();
  bool is_new = false;
  for (size_t i = 0; i < count; ++i) {
    is_new |= forecast_.SawNode(cluster_.node(some ? changed_[i] : static_cast<NodeId>(i)));
  }
  if (is_new) CountNewClasses();
  for (size_t i = 0; i < count; ++i) Describe(some ? changed_[i] : static_cast<NodeId>(i));
  version_ = cluster_.version();
  return is_new;
}

void NodeSummaries::CountNewClasses() {
  const size_t classes = forecast_.classes().size();
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    Places added{};
    for (size_t j = classes_; j < classes; ++j) {
      added[j] = nodes_[id].places[j] = forecast_.PlacesOn(cluster_.node(id), j);
    }
    forecast_.AddPlaces(added, 1);
  }
  classes_ = classes;
  TurnoverChanged();
}

void NodeSummaries::TurnoverChanged() {
  for (NodeSummary& node : nodes_) Keep(node);
}

void NodeSummaries::Describe(NodeId id) {
  const NodeView view = cluster_.node(id);
  NodeSummary& node = nodes_[id];
  forecast_.AddPlaces(node.places, -1);
  for (const auto& [model, slack] : slack_[id]) forecast_.AddSlack(model, -slack);
  slack_[id].clear();
  node = {};
  if (!view->present) return;

  std::array<int16_t, kMaxGpusPerNode> slack;
  uint64_t idle = 0;
  node.plain = !view->mixed_models && view.gpus.size() <= NodeKey::kMaxGpus;
  const bool open = view->schedulable;
  for (size_t i = 0; i < view.gpus.size(); ++i) {
    const GpuState& gpu = view.gpus[i];
    slack[i] = gpu.slack;
    idle |= uint64_t{gpu.slack == 1000} << i;
    node.gpus += gpu.healthy && gpu.kind == kWholeDevice;
    // Unhealthy GPUs and MIG slices have no slack, and nothing of them is offered to plain asks.
    const int offered =
        gpu.healthy && gpu.kind == kWholeDevice && !gpu.held_whole ? gpu.free_milli : 0;
    node.plain &= gpu.slack == std::max(offered, 0);
    if (open) {
      slack_[id].emplace_back(gpu.model, gpu.slack);
      forecast_.AddSlack(gpu.model, gpu.slack);
    }
  }
  node.idle = std::popcount(idle);
  node.paired = view->groups != nullptr && view->groups->EachHasPartner(idle);
  node.model = view->model;
  for (const uint32_t pods : view->pods_by_class) node.pods += static_cast<int>(pods);
  node.cpu_total = view->cpu_total;
  node.memory_total = view->memory_total;
  node.cpu = open ? view->cpu_free : -1;
  node.memory = open ? view->memory_free : -1;
  node.key =
      NodeKey::Of(view->model, view->cpu_free, view->memory_free, slack.data(), view.gpus.size());
  for (size_t j = 0; j < classes_; ++j) node.places[j] = forecast_.PlacesOn(view, j);
  forecast_.AddPlaces(node.places, 1);
  Keep(node);
}

void NodeSummaries::Keep(NodeSummary& node) const {
  node.near = 0;
  const auto classes = forecast_.classes();
  for (size_t j = 0; j < classes.size(); ++j) {
    const LargeSize& size = classes[j].size;
    const int places = node.places[j];
    node.keep_idle = std::max(node.keep_idle, places * size.gpus);
    node.keep_cpu = std::max(node.keep_cpu, places * size.cpu_milli);
    node.keep_memory = std::max(node.keep_memory, places * size.memory);
    const bool near = PartFree(node, size, RoomOf(node), places + 1) > 0;
    node.near |= static_cast<uint32_t>(near) << j;
  }
  node.state = Mix(Mix(Mix(node.key.Hash(), node.cpu), node.memory), node.plain);
  if (node.paired) node.state = Mix(node.state, node.paired);
  // Elsewhere it does not matter how many they are.
  if (node.near != 0) node.state = Mix(node.state, node.pods);
}

// For what part of the next life of a pod so many places are free, if nobody else comes: as many
// pods must leave as have what is lacking, if all of them have the same.
float NodeSummaries::PartFree(const NodeSummary& node, const LargeSize& size, const Room& room,
                              int places) const {
  if (!turnover_.expected() || node.cpu < 0 || node.memory < 0 || !size.Allows(node.model)) {
    return 0;
  }
  const int gpus = places * size.gpus;
  const int64_t cpu = places * size.cpu_milli, memory = places * size.memory;
  if (gpus > node.gpus || cpu > node.cpu_total || memory > node.memory_total) return 0;
  const auto lacking = [](int64_t wanted, int64_t left, int64_t total) {
    return wanted <= left ? 0
                          : static_cast<float>(wanted - left) / static_cast<float>(total - left);
  };
  const float part =
      std::max({lacking(gpus, room.idle, node.gpus), lacking(cpu, room.cpu, node.cpu_total),
                lacking(memory, room.memory, node.memory_total)});
  return turnover_.FreeOf(part * static_cast<float>(room.pods));
}

// The places that there are, and parts of those that there will be.
float NodeSummaries::PlacesSoon(const NodeSummary& node, const LargeSize& size, const Room& room,
                                int places) const {
  auto sum = static_cast<float>(places);
  if (!turnover_.expected()) return sum;
  for (int more = places + 1;; ++more) {
    const float part = PartFree(node, size, room, more);
    if (part == 0) return sum;
    sum += part;
  }
}

bool NodeSummaries::TakesPlaces(const NodeSummary& node, int idle_taken,
                                const Demand& demand) const {
  return node.near != 0 || node.idle - idle_taken < node.keep_idle ||
         node.cpu - demand.cpu_milli < node.keep_cpu ||
         node.memory - demand.memory.count() < node.keep_memory;
}

PlaceParts NodeSummaries::PlacesTaken(const NodeSummary& node, int idle_taken,
                                      const PlainAsk& ask) const {
  const Room room{.idle = node.idle - idle_taken,
                  .pods = node.pods + 1,
                  .cpu = node.cpu - ask.demand.cpu_milli,
                  .memory = node.memory - ask.demand.memory.count()};
  PlaceParts taken{};
  const auto classes = forecast_.classes();
  for (size_t j = 0; j < classes.size(); ++j) {
    const LargeSize& size = classes[j].size;
    if (node.places[j] == 0 && (node.near >> j & 1) == 0) continue;
    int left = node.places[j];
    while (left > 0 && (left * size.gpus > room.idle || left * size.cpu_milli > room.cpu ||
                        left * size.memory > room.memory)) {
      --left;
    }
    const float lost = PlacesSoon(node, size, RoomOf(node), node.places[j]) -
                       PlacesSoon(node, size, room, left) - static_cast<float>(ask.own[j]);
    taken[j] = static_cast<uint16_t>(std::max(lost * kPartsPerPlace + 0.5f, 0.0f));
  }
  return taken;
}

NodeSummary& NodeSummaries::Of(NodeId id, const WasteModel* model, uint32_t generation) {
  NodeSummary& node = nodes_[id];
  if (model == nullptr || node.generation == generation) return node;
  const NodeView view = cluster_.node(id);
  node.sums = {};
  for (const GpuState& gpu : view.gpus) model->Add(gpu.model, gpu.slack, 1, &node.sums);
  node.closed = model->ClosedForm(node.sums, view->cpu_free, view->memory_free);
  node.rolled = -1;
  node.generation = generation;
  return node;
}

}  // namespace tessera::placement
