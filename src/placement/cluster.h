// SPDX-License-Identifier: Apache-2.0
// The state on which placement decides: nodes, the free parts of their GPUs, and the pods that hold
// the other parts. Updated in place as pods and nodes are added and removed. Does not decide
// (policy.h), and does not know the names of pods: the caller maps names to ids.
//
// Place never exceeds the capacity of a GPU or a node, and a whole GPU excludes all other pods.
// Adopt records pods that already run, even if they hold more than the node has. Free amounts are
// then negative, and nothing more is placed there until enough pods have left.
//
// Threads: one. Cost: Place and Remove touch one node.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/placement/demand.h"
#include "src/placement/gpu_names.h"
#include "src/placement/shapes.h"

namespace tessera::placement {

class LinkedGroups;

using NodeId = uint32_t;
using PodId = uint64_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

struct GpuSpec {
  std::string uuid;  // empty in traces, where the position identifies the GPU
  std::string model;
  Bytes memory;             // 0: unknown; pods that request an amount of memory do not fit
  std::string mig_profile;  // "1g.10gb" for a slice; empty for a GPU
  bool healthy = true;
  std::string parent_uuid;  // UUID of the GPU that contains the slice; empty for a GPU

  bool operator==(const GpuSpec&) const = default;
};

struct NodeSpec {
  std::string name;
  int64_t cpu_milli = 0;
  Bytes memory;
  std::vector<GpuSpec> gpus;
  // Links of the GPUs by position, possibly only of the first GPUs; null if unknown. Shared by
  // nodes with equal links (LinkedGroupsCache).
  std::shared_ptr<const LinkedGroups> groups;
  std::string pool;
  bool schedulable = true;
};

// The free parts of one GPU. Policies compute with `slack`: the free thousandths of compute or of
// memory, whichever is less; 0 if the GPU is unhealthy.
struct GpuState {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  int32_t free_milli = 1000;
  int16_t slack = 1000;
  uint16_t pods = 0;
  GpuId id = kNoGpu;
  uint8_t model = kNoModel;  // a ModelId
  KindId kind = kNoMigProfile;
  bool healthy = true;
  bool held_whole = false;  // by one pod

  bool idle() const { return pods == 0; }
  bool operator==(const GpuState&) const = default;
};
static_assert(kMaxModels <= 256);
static_assert(sizeof(GpuState) == 32, "two in a cache line: decisions read little else");

// Pods by the number of their GPUs.
enum class PodSize : uint8_t { kNoGpu, kShare, kOne, kTwo, kFour, kEight, kOther };
inline constexpr size_t kPodSizes = 7;
PodSize PodSizeOf(const Demand& demand);
PodSize PodSizeOf(int whole_gpus);
// "none", "share", "1", "2", "4", "8" or "other".
std::string_view NameOf(PodSize size);

struct NodeState {
  int64_t cpu_free = 0;
  int64_t memory_free = 0;
  int64_t cpu_total = 0;
  int64_t memory_total = 0;
  uint64_t version = 0;                  // of the cluster when the node last changed
  const LinkedGroups* groups = nullptr;  // of its NodeSpec
  uint32_t first_gpu = 0;                // index in the chunk's `gpus`
  uint16_t gpu_count = 0;
  uint16_t gpu_capacity = 0;  // GPUs for which the chunk has space
  ModelId model = kNoModel;   // of all its GPUs; kNoModel without GPUs or if they differ
  bool present = false;       // false once the node is removed
  bool schedulable = false;
  bool mixed_models = false;
  std::array<uint32_t, kPodSizes> pods_by_size{};
};

// One node; valid until its cluster changes or is destroyed.
struct NodeView {
  const NodeState* state;
  std::span<const GpuState> gpus;

  const NodeState* operator->() const { return state; }
};

// Nodes are stored in chunks of 64, so that a node with more GPUs moves only its chunk's GPUs.
inline constexpr size_t kChunkNodes = 64;
struct NodeChunk {
  // The parts of a NodeSpec that decisions do not read.
  struct Names {
    std::string name, pool;
    std::shared_ptr<const LinkedGroups> groups;
    std::vector<GpuNames::Name> gpus;
  };
  std::array<NodeState, kChunkNodes> nodes;
  std::array<Names, kChunkNodes> names;
  std::vector<GpuState> gpus;

  NodeView View(size_t index) const {
    const NodeState& node = nodes[index];
    return {&node, std::span(gpus).subspan(node.first_gpu, node.gpu_count)};
  }
};

struct PlacedPod {
  ShapeId shape = 0;
  NodeId node = kNoNode;
  Pick pick;
};

class Cluster {
 public:
  Cluster();
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // --- Names. RESOURCE_EXHAUSTED above kMaxModels models or 255 MIG profiles.
  Result<ModelId> ModelOf(std::string_view name);
  Result<KindId> KindOf(std::string_view mig_profile);
  // kNoModel if no node and no demand has used the name.
  ModelId FindModel(std::string_view name) const;
  // Nothing if no node and no demand has used the name.
  std::optional<KindId> FindKind(std::string_view mig_profile) const;
  std::string_view NameOf(ModelId model) const { return models_[model]; }
  std::string_view NameOfKind(KindId kind) const { return kinds_[kind]; }
  size_t model_count() const { return models_.size(); }
  // The ids of the GPU or MIG slice with this UUID and of the GPU's slices, ascending; empty if no
  // node has the UUID. A GpuId becomes invalid when its GPU is removed, so look it up for each
  // decision.
  std::vector<GpuId> FindGpus(std::string_view uuid) const { return gpu_names_.Find(uuid); }

  // --- Nodes.
  // ALREADY_EXISTS for a name that is present; INVALID_ARGUMENT for negative or impossible numbers.
  // Ids of removed nodes are reused, so that replaced nodes take no additional memory.
  Result<NodeId> AddNode(NodeSpec spec);
  // Replaces a node's spec, after GPUs were added, removed or became unhealthy, or the node was
  // cordoned. Pods stay on their GPUs, which are matched by UUID. A removed GPU stays listed as
  // unhealthy while pods hold it.
  Status UpdateNode(NodeId id, NodeSpec spec);
  // Removes the node and its pods.
  Status RemoveNode(NodeId id);
  NodeId FindNode(std::string_view name) const;  // kNoNode if not found

  size_t size() const { return size_; }  // all node ids are below it; some nodes may be removed
  NodeView node(NodeId id) const { return chunks_[id / kChunkNodes]->View(id % kChunkNodes); }
  const std::string& name(NodeId id) const { return NamesOf(id).name; }
  const std::string& pool(NodeId id) const { return NamesOf(id).pool; }
  std::string uuid(NodeId id, size_t position) const {
    return NamesOf(id).gpus[position].uuid().str();
  }
  // The position of a GPU or MIG slice; nullopt if the node does not have it.
  std::optional<size_t> PositionOf(NodeId id, std::string_view uuid) const;
  // Both build a new object in each call: the cluster keeps no NodeSpec.
  GpuSpec gpu(NodeId id, size_t position) const;
  NodeSpec spec(NodeId id) const;
  // Thousandths of all healthy GPUs that are not cut into MIG slices: in total, and not held by
  // pods.
  int64_t total_milli() const { return total_milli_; }
  int64_t free_milli() const { return free_milli_; }

  // --- Shapes: equal demands have one id. INVALID_ARGUMENT as Validate(demand).
  Result<ShapeId> Intern(const Demand& demand);
  const Shapes& shapes() const { return shapes_; }
  const Demand& demand(ShapeId shape) const { return shapes_.demand(shape); }

  // --- Pods.
  // Places a pod with `pick` on `node`. FAILED_PRECONDITION names what is missing, and nothing
  // changes.
  Result<PodId> Place(ShapeId shape, NodeId node, const Pick& pick);
  // Records a pod that already runs, even without room for it. NOT_FOUND or INVALID_ARGUMENT if the
  // node or the GPU does not exist.
  Result<PodId> Adopt(ShapeId shape, NodeId node, const Pick& pick);
  // Frees exactly what the pod took. NOT_FOUND for an unknown pod.
  Status Remove(PodId pod);
  const PlacedPod* Find(PodId pod) const;
  // Pods of one node, unordered.
  std::span<const PodId> pods_of(NodeId node) const;
  size_t pod_count() const { return pod_count_; }

  // --- Changes.
  // The version grows with every change to a node. ChangesSince(v) returns the nodes that changed
  // after version v, oldest first and possibly repeated. False: v is too old, and all nodes may
  // have changed.
  uint64_t version() const { return version_; }
  bool ChangesSince(uint64_t version, std::vector<NodeId>* changed) const;

 private:
  struct StoredPod;

  NodeId NewNodeId();
  NodeChunk& ChunkOf(NodeId id) { return *chunks_[id / kChunkNodes]; }
  const NodeChunk::Names& NamesOf(NodeId id) const {
    return chunks_[id / kChunkNodes]->names[id % kChunkNodes];
  }
  void RecordChange(NodeId id);
  Status CheckSpec(const NodeSpec& spec) const;
  Status InitStates(const NodeSpec& spec, std::vector<GpuState>* gpus, NodeState* state);
  void SetNode(NodeId id, NodeSpec spec, NodeState state, std::vector<GpuState> gpus);
  void DropNames(std::vector<GpuNames::Name>& gpus);
  PodId Record(ShapeId shape, NodeId node, const Pick& pick);
  void Apply(const PlacedPod& pod, int sign);
  bool OtherPodHoldsWhole(const PlacedPod& pod, size_t i) const;
  void CountMilli(const NodeView& view, int sign);
  StoredPod* FindStored(PodId pod);

  std::vector<std::string> models_, kinds_;
  GpuNames gpu_names_;
  std::vector<std::unique_ptr<NodeChunk>> chunks_;
  size_t size_ = 0;
  std::vector<NodeId> free_nodes_;  // ids of nodes that were removed
  std::unordered_map<std::string, NodeId> by_name_;
  std::vector<std::vector<PodId>> node_pods_;

  Shapes shapes_;
  std::vector<StoredPod> pods_;
  std::vector<uint32_t> free_indices_;
  size_t pod_count_ = 0;

  int64_t total_milli_ = 0;
  int64_t free_milli_ = 0;
  uint64_t version_ = 0;
  // A ring: the node that changed in version v is at v modulo its size.
  std::vector<NodeId> change_log_;
};

}  // namespace tessera::placement
