// SPDX-License-Identifier: Apache-2.0
#include "src/placement/cluster.h"

#include <algorithm>
#include <bit>

#include "src/placement/fit.h"
#include "src/placement/linked_groups.h"

namespace tessera::placement {
namespace {

constexpr size_t kInitialLogSize = 1024;

int16_t SlackNow(const GpuState& gpu) {
  if (!gpu.healthy || gpu.kind != kNoMigProfile || gpu.held_whole) return 0;
  if (gpu.idle()) return 1000;
  int64_t slack = std::max(gpu.free_milli, 0);
  if (gpu.total_bytes > 0) {
    slack = std::min(slack, std::max<int64_t>(gpu.free_bytes, 0) * 1000 / gpu.total_bytes);
  }
  return static_cast<int16_t>(slack);
}

uint32_t IndexOf(PodId pod) { return static_cast<uint32_t>(pod); }
uint32_t GenerationOf(PodId pod) { return static_cast<uint32_t>(pod >> 32); }

Result<size_t> FindOrAdd(std::vector<std::string>& names, std::string_view name, size_t limit,
                         std::string_view category) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at != names.end()) return static_cast<size_t>(at - names.begin());
  if (names.size() >= limit) {
    return Error(Code::kResourceExhausted, "{} \"{}\": the cluster already has {} others", category,
                 name, limit - 1);
  }
  names.emplace_back(name);
  return names.size() - 1;
}

}  // namespace

struct Cluster::StoredPod {
  PlacedPod pod;
  uint32_t generation = 0;
  uint32_t index_in_node = 0;  // position in the node's list in node_pods_
  bool used = false;
};

PodSize PodSizeOf(const Demand& demand) {
  if (demand.gpu_demands.size() == 1 && !demand.gpu_demands[0].whole()) return PodSize::kShare;
  return PodSizeOf(demand.gpus());
}

PodSize PodSizeOf(int whole_gpus) {
  switch (whole_gpus) {
    case 0:
      return PodSize::kNoGpu;
    case 1:
      return PodSize::kOne;
    case 2:
      return PodSize::kTwo;
    case 4:
      return PodSize::kFour;
    case 8:
      return PodSize::kEight;
    default:
      return PodSize::kOther;
  }
}

std::string_view NameOf(PodSize size) {
  static constexpr std::array<std::string_view, kPodSizes> kNames = {"none", "share", "1",    "2",
                                                                     "4",    "8",     "other"};
  return kNames[static_cast<size_t>(size)];
}

Cluster::Cluster() : models_{""}, kinds_{""}, change_log_(kInitialLogSize) {}
Cluster::~Cluster() = default;

Result<ModelId> Cluster::ModelOf(std::string_view name) {
  ASSIGN_OR_RETURN(const size_t id, FindOrAdd(models_, name, kMaxModels, "GPU model"));
  return static_cast<ModelId>(id);
}

Result<KindId> Cluster::KindOf(std::string_view mig_profile) {
  ASSIGN_OR_RETURN(const size_t id, FindOrAdd(kinds_, mig_profile, 256, "MIG profile"));
  return static_cast<KindId>(id);
}

ModelId Cluster::FindModel(std::string_view name) const {
  const auto at = std::find(models_.begin(), models_.end(), name);
  return at == models_.end() ? kNoModel : static_cast<ModelId>(at - models_.begin());
}

std::optional<KindId> Cluster::FindKind(std::string_view mig_profile) const {
  const auto at = std::find(kinds_.begin(), kinds_.end(), mig_profile);
  if (at == kinds_.end()) return std::nullopt;
  return static_cast<KindId>(at - kinds_.begin());
}

// --- Nodes

Status Cluster::CheckSpec(const NodeSpec& spec) const {
  const auto invalid = [&](std::string_view problem) {
    return Error(Code::kInvalidArgument, "node \"{}\": {}", spec.name, problem);
  };
  if (spec.name.empty()) return Error(Code::kInvalidArgument, "a node has no name");
  if (spec.cpu_milli < 0 || spec.memory < Bytes(0)) return invalid("negative CPU or memory");
  if (spec.gpus.size() > kMaxGpusPerNode) {
    return invalid(
        fmt::format("{} GPUs: at most {} are supported", spec.gpus.size(), kMaxGpusPerNode));
  }
  if (spec.groups != nullptr && spec.groups->size() > spec.gpus.size()) {
    return invalid(
        fmt::format("links of {} GPUs, but it has {}", spec.groups->size(), spec.gpus.size()));
  }
  for (size_t i = 0; i < spec.gpus.size(); ++i) {
    if (spec.gpus[i].memory < Bytes(0))
      return invalid(fmt::format("GPU {} has negative memory", i));
    // Computing slack multiplies by 1000, which does not overflow up to 2^43 bytes.
    if (spec.gpus[i].memory.count() > int64_t{1} << 43) {
      return invalid(
          fmt::format("GPU {} has {} bytes, more than any GPU", i, spec.gpus[i].memory.count()));
    }
    for (size_t j = 0; j < i && !spec.gpus[i].uuid.empty(); ++j) {
      if (spec.gpus[j].uuid == spec.gpus[i].uuid) {
        return invalid(fmt::format("GPU {} is listed twice", spec.gpus[i].uuid));
      }
    }
  }
  if (spec.gpus.size() > gpu_names_.left()) {
    return Error(Code::kResourceExhausted, "node \"{}\": all GPU numbers are used up", spec.name);
  }
  return {};
}

Status Cluster::InitStates(const NodeSpec& spec, std::vector<GpuState>* gpus, NodeState* state) {
  state->cpu_total = state->cpu_free = spec.cpu_milli;
  state->memory_total = state->memory_free = spec.memory.count();
  state->present = true;
  state->schedulable = spec.schedulable;
  state->gpu_count = static_cast<uint16_t>(spec.gpus.size());
  state->groups = spec.groups.get();
  for (const GpuSpec& gpu : spec.gpus) {
    GpuState now;
    ASSIGN_OR_RETURN(now.model, ModelOf(gpu.model));
    ASSIGN_OR_RETURN(now.kind, KindOf(gpu.mig_profile));
    now.free_bytes = now.total_bytes = gpu.memory.count();
    now.healthy = gpu.healthy;
    now.slack = SlackNow(now);
    gpus->push_back(now);
  }
  state->model = gpus->empty() ? kNoModel : gpus->front().model;
  for (const GpuState& gpu : *gpus) state->mixed_models |= gpu.model != state->model;
  if (state->mixed_models) state->model = kNoModel;
  return {};
}

Result<NodeId> Cluster::AddNode(NodeSpec spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  if (by_name_.contains(spec.name)) {
    return Error(Code::kAlreadyExists, "node \"{}\" already exists", spec.name);
  }
  NodeState state;
  std::vector<GpuState> gpus;
  RETURN_IF_ERROR(InitStates(spec, &gpus, &state).Annotate(spec.name));
  const NodeId id = NewNodeId();
  by_name_[spec.name] = id;
  SetNode(id, std::move(spec), state, std::move(gpus));
  return id;
}

NodeId Cluster::NewNodeId() {
  if (!free_nodes_.empty()) {
    const NodeId id = free_nodes_.back();
    free_nodes_.pop_back();
    return id;
  }
  const NodeId id = static_cast<NodeId>(size_++);
  if (id / kChunkNodes == chunks_.size()) chunks_.push_back(std::make_unique<NodeChunk>());
  node_pods_.emplace_back();
  return id;
}

// Writes state and GPUs into the chunk. If the node has more GPUs than before, they move to the end
// of the chunk.
void Cluster::SetNode(NodeId id, NodeSpec spec, NodeState state, std::vector<GpuState> gpus) {
  // Adds the new GPUs before dropping the old GPUs, so that a GPU that stays keeps its number.
  NodeChunk::Names names{
      .name = std::move(spec.name), .pool = std::move(spec.pool), .groups = std::move(spec.groups)};
  names.gpus.reserve(gpus.size());
  for (size_t i = 0; i < gpus.size(); ++i) {
    names.gpus.push_back(gpu_names_.Add(spec.gpus[i].uuid, spec.gpus[i].parent_uuid));
    gpus[i].id = names.gpus.back().id();
  }
  NodeChunk& chunk = ChunkOf(id);
  const size_t index = id % kChunkNodes;
  const NodeState& old = chunk.nodes[index];
  DropNames(chunk.names[index].gpus);
  state.first_gpu = old.first_gpu;
  state.gpu_capacity = old.gpu_capacity;
  if (state.gpu_capacity < gpus.size()) {
    state.first_gpu = static_cast<uint32_t>(chunk.gpus.size());
    state.gpu_capacity = static_cast<uint16_t>(gpus.size());
    chunk.gpus.resize(state.first_gpu + gpus.size());
  }
  std::copy(gpus.begin(), gpus.end(), chunk.gpus.begin() + state.first_gpu);
  chunk.nodes[index] = state;
  chunk.names[index] = std::move(names);
  CountMilli(chunk.View(index), 1);
  RecordChange(id);
}

void Cluster::DropNames(std::vector<GpuNames::Name>& gpus) {
  for (const GpuNames::Name& gpu : gpus) gpu_names_.Drop(gpu);
  gpus.clear();
}

GpuSpec Cluster::gpu(NodeId id, size_t position) const {
  const GpuState& state = node(id).gpus[position];
  const GpuNames::Name& name = NamesOf(id).gpus[position];
  return {.uuid = name.uuid().str(),
          .model = models_[state.model],
          .memory = Bytes(state.total_bytes),
          .mig_profile = kinds_[state.kind],
          .healthy = state.healthy,
          .parent_uuid = name.parent_uuid().str()};
}

std::optional<size_t> Cluster::PositionOf(NodeId id, std::string_view uuid) const {
  const UuidText wanted(uuid);
  const std::vector<GpuNames::Name>& gpus = NamesOf(id).gpus;
  const auto at = std::ranges::find(gpus, wanted, &GpuNames::Name::uuid);
  if (at == gpus.end()) return std::nullopt;
  return static_cast<size_t>(at - gpus.begin());
}

NodeSpec Cluster::spec(NodeId id) const {
  const NodeChunk::Names& names = NamesOf(id);
  const NodeView view = node(id);
  NodeSpec spec{.name = names.name,
                .cpu_milli = view->cpu_total,
                .memory = Bytes(view->memory_total),
                .groups = names.groups,
                .pool = names.pool,
                .schedulable = view->schedulable};
  for (size_t i = 0; i < view.gpus.size(); ++i) spec.gpus.push_back(gpu(id, i));
  return spec;
}

Status Cluster::UpdateNode(NodeId id, NodeSpec spec) {
  if (id >= size_ || !node(id)->present) return Error(Code::kNotFound, "node {} is gone", id);
  RETURN_IF_ERROR(CheckSpec(spec));
  const NodeSpec old = this->spec(id);
  if (spec.name != old.name) {
    return Error(Code::kInvalidArgument, "node \"{}\" cannot become \"{}\"", old.name, spec.name);
  }
  // Maps each GPU to its new position; held GPUs that are gone come last, as unhealthy.
  uint64_t held = 0;
  for (const PodId pod : node_pods_[id]) held |= pods_[IndexOf(pod)].pod.pick.all();
  std::array<size_t, kMaxGpusPerNode> moved_to{};
  for (size_t i = 0; i < old.gpus.size(); ++i) {
    const auto same = [&](const GpuSpec& gpu) { return gpu.uuid == old.gpus[i].uuid; };
    const auto at = old.gpus[i].uuid.empty()
                        ? spec.gpus.begin() + std::min(i, spec.gpus.size())
                        : std::find_if(spec.gpus.begin(), spec.gpus.end(), same);
    moved_to[i] = static_cast<size_t>(at - spec.gpus.begin());
    if (at != spec.gpus.end() || (held >> i & 1) == 0) continue;
    spec.gpus.push_back(old.gpus[i]);
    spec.gpus.back().healthy = false;
  }
  if (spec.gpus.size() > kMaxGpusPerNode) {
    return Error(
        Code::kInvalidArgument,
        "node \"{}\": {} GPUs, including removed GPUs that pods still hold: want at most {}",
        spec.name, spec.gpus.size(), kMaxGpusPerNode);
  }
  NodeState state;
  std::vector<GpuState> gpus;
  RETURN_IF_ERROR(InitStates(spec, &gpus, &state).Annotate(spec.name));
  CountMilli(node(id), -1);
  SetNode(id, std::move(spec), state, std::move(gpus));
  for (const PodId pod : node_pods_[id]) {
    PlacedPod& moved = pods_[IndexOf(pod)].pod;
    for (size_t n = 0; n < demand(moved.shape).gpu_demands.size(); ++n) {
      uint64_t& mask = moved.pick.masks[n];
      uint64_t now = 0;
      for (uint64_t left = mask; left != 0; left &= left - 1) {
        now |= uint64_t{1} << moved_to[std::countr_zero(left)];
      }
      mask = now;
    }
    Apply(moved, 1);
  }
  return {};
}

Status Cluster::RemoveNode(NodeId id) {
  if (id >= size_ || !node(id)->present) return Error(Code::kNotFound, "node {} is gone", id);
  while (!node_pods_[id].empty()) RETURN_IF_ERROR(Remove(node_pods_[id].back()));
  CountMilli(node(id), -1);
  by_name_.erase(name(id));
  NodeChunk& chunk = ChunkOf(id);
  DropNames(chunk.names[id % kChunkNodes].gpus);
  NodeState& state = chunk.nodes[id % kChunkNodes];
  state.present = state.schedulable = false;
  state.gpu_count = 0;
  free_nodes_.push_back(id);
  RecordChange(id);
  return {};
}

NodeId Cluster::FindNode(std::string_view name) const {
  const auto at = by_name_.find(std::string(name));
  return at == by_name_.end() ? kNoNode : at->second;
}

void Cluster::CountMilli(const NodeView& view, int sign) {
  for (const GpuState& gpu : view.gpus) {
    if (!gpu.healthy || gpu.kind != kNoMigProfile) continue;
    total_milli_ += sign * 1000;
    free_milli_ += sign * std::max<int>(gpu.free_milli, 0);
  }
}

// --- Pods

Result<ShapeId> Cluster::Intern(const Demand& demand) {
  RETURN_IF_ERROR(Validate(demand));
  return shapes_.Intern(demand);
}

Result<PodId> Cluster::Place(ShapeId shape, NodeId id, const Pick& pick) {
  if (id >= size_) return Error(Code::kNotFound, "unknown node {}", id);
  RETURN_IF_ERROR(CheckPick(node(id), demand(shape), pick));
  return Record(shape, id, pick);
}

Result<PodId> Cluster::Adopt(ShapeId shape, NodeId id, const Pick& pick) {
  if (id >= size_ || !node(id)->present) return Error(Code::kNotFound, "unknown node {}", id);
  RETURN_IF_ERROR(CheckPickShape(node(id), demand(shape), pick));
  return Record(shape, id, pick);
}

PodId Cluster::Record(ShapeId shape, NodeId id, const Pick& pick) {
  uint32_t index;
  if (free_indices_.empty()) {
    index = static_cast<uint32_t>(pods_.size());
    pods_.emplace_back();
  } else {
    index = free_indices_.back();
    free_indices_.pop_back();
  }
  StoredPod& stored = pods_[index];
  stored.pod = {shape, id, pick};
  stored.used = true;
  stored.index_in_node = static_cast<uint32_t>(node_pods_[id].size());
  const PodId pod = static_cast<PodId>(stored.generation) << 32 | index;
  node_pods_[id].push_back(pod);
  shapes_.Ref(shape);
  ++pod_count_;
  Apply(stored.pod, 1);
  return pod;
}

Cluster::StoredPod* Cluster::FindStored(PodId pod) {
  if (IndexOf(pod) >= pods_.size()) return nullptr;
  StoredPod& stored = pods_[IndexOf(pod)];
  return stored.used && stored.generation == GenerationOf(pod) ? &stored : nullptr;
}

const PlacedPod* Cluster::Find(PodId pod) const {
  const StoredPod* stored = const_cast<Cluster*>(this)->FindStored(pod);
  return stored ? &stored->pod : nullptr;
}

Status Cluster::Remove(PodId pod) {
  StoredPod* stored = FindStored(pod);
  if (stored == nullptr) return Error(Code::kNotFound, "the pod is gone");
  Apply(stored->pod, -1);
  std::vector<PodId>& pods_on_node = node_pods_[stored->pod.node];
  pods_[IndexOf(pods_on_node.back())].index_in_node = stored->index_in_node;
  pods_on_node[stored->index_in_node] = pods_on_node.back();
  pods_on_node.pop_back();
  shapes_.Unref(stored->pod.shape);
  stored->used = false;
  ++stored->generation;
  free_indices_.push_back(IndexOf(pod));
  --pod_count_;
  return {};
}

std::span<const PodId> Cluster::pods_of(NodeId id) const { return node_pods_[id]; }

// Whether a pod other than `pod` holds the whole GPU at position `i` of its node. This is possible
// only for adopted pods.
bool Cluster::OtherPodHoldsWhole(const PlacedPod& pod, size_t i) const {
  return std::ranges::any_of(node_pods_[pod.node], [&](PodId id) {
    const PlacedPod& other = pods_[IndexOf(id)].pod;
    if (&other == &pod) return false;
    const std::vector<GpuDemand>& gpu_demands = demand(other.shape).gpu_demands;
    for (size_t n = 0; n < gpu_demands.size(); ++n) {
      if (gpu_demands[n].whole() && (other.pick.masks[n] >> i & 1) != 0) return true;
    }
    return false;
  });
}

// Takes (sign 1) or frees (sign -1) what the pod holds. A pod with a whole GPU takes all memory of
// the GPU, so that freeing restores the exact amount even if adopted pods share the GPU.
void Cluster::Apply(const PlacedPod& pod, int sign) {
  const Demand& demand = this->demand(pod.shape);
  NodeChunk& chunk = ChunkOf(pod.node);
  NodeState& state = chunk.nodes[pod.node % kChunkNodes];
  state.cpu_free -= sign * demand.cpu_milli;
  state.memory_free -= sign * demand.memory.count();
  state.pods_by_size[static_cast<size_t>(PodSizeOf(demand))] += sign;
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    const GpuDemand& gpu_demand = demand.gpu_demands[n];
    for (uint64_t left = pod.pick.masks[n]; left != 0; left &= left - 1) {
      const size_t i = static_cast<size_t>(std::countr_zero(left));
      GpuState& gpu = chunk.gpus[state.first_gpu + i];
      const int before = std::max<int>(gpu.free_milli, 0);
      gpu.free_milli -= sign * static_cast<int32_t>(gpu_demand.milli.count());
      gpu.free_bytes -= sign * (gpu_demand.whole() ? gpu.total_bytes : gpu_demand.bytes.count());
      gpu.pods += sign;
      if (gpu_demand.whole()) {
        gpu.held_whole = sign > 0 || (gpu.pods > 0 && OtherPodHoldsWhole(pod, i));
      }
      gpu.slack = SlackNow(gpu);
      if (gpu.healthy && gpu.kind == kNoMigProfile) {
        free_milli_ += std::max<int>(gpu.free_milli, 0) - before;
      }
    }
  }
  RecordChange(pod.node);
}

// --- Changes

void Cluster::RecordChange(NodeId id) {
  // The log must hold more changes than there are nodes. Otherwise a shape that is rarely used
  // would score all nodes again each time.
  if (change_log_.size() < 2 * size_) {
    std::vector<NodeId> larger(change_log_.size() * 4);
    const uint64_t oldest = version_ < change_log_.size() ? 0 : version_ - change_log_.size();
    for (uint64_t v = oldest + 1; v <= version_; ++v) {
      larger[v % larger.size()] = change_log_[v % change_log_.size()];
    }
    change_log_ = std::move(larger);
  }
  ++version_;
  change_log_[version_ % change_log_.size()] = id;
  chunks_[id / kChunkNodes]->nodes[id % kChunkNodes].version = version_;
}

bool Cluster::ChangesSince(uint64_t version, std::vector<NodeId>* changed) const {
  changed->clear();
  if (version_ - version >= change_log_.size()) return false;
  for (uint64_t v = version + 1; v <= version_; ++v)
    changed->push_back(change_log_[v % change_log_.size()]);
  return true;
}

}  // namespace tessera::placement
