// SPDX-License-Identifier: Apache-2.0
// The state that placement decides on: nodes, the free parts of their GPUs, and the pods that hold
// the rest. Updated in place when one pod or node comes or goes; readers elsewhere get an immutable
// Snapshot. Not for deciding (policy.h), nor for knowing who a pod is: the caller maps names to
// ids.
//
// Conservation: Place never gives out more of a GPU or a node than it has, and a whole GPU excludes
// everybody else. Adopt records what already runs, also where that is too much: then what is free
// is negative, and nothing more is placed there until it is not.
//
// Threads: a Cluster belongs to one thread; a Snapshot may be read and dropped by any.
// Cost: Place and Remove touch one node; with a snapshot alive the first change to a node copies
// the 64 nodes around it. GetSnapshot copies one pointer for 64 nodes.
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
  std::string uuid;  // empty where nobody names GPUs (traces): then its position names it
  std::string model;
  Bytes memory;             // 0: not known; then it takes nobody who says how much he needs
  std::string mig_profile;  // "1g.10gb" for a slice; empty for a GPU
  bool healthy = true;
  std::string cut_from;  // UUID of the GPU that a slice is part of

  bool operator==(const GpuSpec&) const = default;
};

struct NodeSpec {
  std::string name;
  int64_t cpu_milli = 0;
  Bytes memory;
  std::vector<GpuSpec> gpus;
  // How the GPUs are linked, by position, the first ones where it knows fewer; null where nobody
  // knows. Shared by nodes that are alike (LinkedGroupsCache).
  std::shared_ptr<const LinkedGroups> groups;
  std::string pool;
  bool schedulable = true;
};

// What is left of one GPU. `slack` is what policies count with: thousandths of the scarcer of
// compute and memory, 0 when it is unhealthy.
struct GpuState {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  int32_t free_milli = 1000;
  int16_t slack = 1000;
  uint16_t pods = 0;
  GpuId id = kNoGpu;
  uint8_t model = kNoModel;  // a ModelId
  KindId kind = kWholeDevice;
  bool healthy = true;
  bool held_whole = false;  // by a pod that has it to itself

  bool idle() const { return pods == 0; }
  bool operator==(const GpuState&) const = default;
};
static_assert(kMaxModels <= 256);
static_assert(sizeof(GpuState) == 32, "two in a cache line: decisions read little else");

// What the pods of a node look like, as policies that gather equals want to know it.
enum class PodClass : uint8_t { kNoGpu, kShare, kOne, kTwo, kFour, kEight, kOther };
inline constexpr size_t kPodClasses = 7;
PodClass ClassOf(const Demand& demand);

struct NodeState {
  int64_t cpu_free = 0;
  int64_t memory_free = 0;
  int64_t cpu_total = 0;
  int64_t memory_total = 0;
  uint64_t version = 0;                  // of the cluster when it last changed
  const LinkedGroups* groups = nullptr;  // of the spec beside it
  uint32_t first_gpu = 0;                // in its chunk
  uint16_t gpu_count = 0;
  uint16_t gpu_room = 0;     // how many GPUs the chunk has room for there
  ModelId model = kNoModel;  // of all its GPUs; kNoModel where it has none or they differ
  bool present = false;      // false once the node is gone
  bool schedulable = false;
  bool mixed_models = false;
  std::array<uint32_t, kPodClasses> pods_by_class{};
};

// One node to look at; valid until the cluster or snapshot that gave it changes or goes.
struct NodeView {
  const NodeState* state;
  std::span<const GpuState> gpus;

  const NodeState* operator->() const { return state; }
};

// 64 nodes, so that a copy is small and a snapshot of 5,000 nodes is 79 pointers.
inline constexpr size_t kChunkNodes = 64;
struct NodeChunk {
  std::array<NodeState, kChunkNodes> nodes;
  std::array<std::shared_ptr<const NodeSpec>, kChunkNodes> specs;
  std::vector<GpuState> gpus;

  NodeView View(size_t slot) const {
    const NodeState& node = nodes[slot];
    return {&node, std::span(gpus).subspan(node.first_gpu, node.gpu_count)};
  }
};

class Snapshot {
 public:
  size_t size() const { return size_; }  // node ids are below it; some may be gone
  uint64_t version() const { return version_; }
  NodeView node(NodeId id) const { return chunks_[id / kChunkNodes]->View(id % kChunkNodes); }
  const NodeSpec& spec(NodeId id) const {
    return *chunks_[id / kChunkNodes]->specs[id % kChunkNodes];
  }

 private:
  friend class Cluster;
  size_t size_ = 0;
  uint64_t version_ = 0;
  std::vector<std::shared_ptr<const NodeChunk>> chunks_;
};

struct Pod {
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
  // kNoModel where no node and no demand has named it.
  ModelId FindModel(std::string_view name) const;
  // Nothing where no node and no demand has named it.
  std::optional<KindId> FindKind(std::string_view mig_profile) const;
  std::string_view NameOf(ModelId model) const { return models_[model]; }
  std::string_view NameOfKind(KindId kind) const { return kinds_[kind]; }
  size_t model_count() const { return models_.size(); }
  // The GPU or MIG slice of this UUID and the slices of that GPU, ascending; empty where no node
  // has it. Numbers go with the GPU: ask again for each decision.
  std::vector<GpuId> FindGpus(std::string_view uuid) const { return gpu_names_.Find(uuid); }

  // --- Nodes.
  // ALREADY_EXISTS for a name that is present; INVALID_ARGUMENT for negative or impossible numbers.
  // The id may be that of a node that was removed, so that nodes that come and go take no memory.
  Result<NodeId> AddNode(NodeSpec spec);
  // What a node has now: GPUs came, went or fell ill, it was cordoned. Pods stay on their GPUs,
  // which are known by UUID; a GPU that is gone stays listed as unhealthy for as long as pods hold
  // it.
  Status UpdateNode(NodeId id, NodeSpec spec);
  // Its pods go with it.
  Status RemoveNode(NodeId id);
  NodeId FindNode(std::string_view name) const;  // kNoNode where there is none

  size_t size() const { return size_; }  // node ids are below it; some may be gone
  NodeView node(NodeId id) const { return chunks_[id / kChunkNodes]->View(id % kChunkNodes); }
  const NodeSpec& spec(NodeId id) const {
    return *chunks_[id / kChunkNodes]->specs[id % kChunkNodes];
  }
  // Thousandths of healthy whole-device GPUs: all, and what is not given out.
  int64_t total_milli() const { return total_milli_; }
  int64_t free_milli() const { return free_milli_; }

  // --- Shapes: demands that are equal have one id. INVALID_ARGUMENT as Validate(demand).
  Result<ShapeId> Intern(const Demand& demand);
  const Shapes& shapes() const { return shapes_; }
  const Demand& demand(ShapeId shape) const { return shapes_.demand(shape); }

  // --- Pods.
  // Gives `pick` on `node` to a pod. FAILED_PRECONDITION says what is missing; nothing changes
  // then.
  Result<PodId> Place(ShapeId shape, NodeId node, const Pick& pick);
  // Records a pod that runs already, whether there is room for it or not. NOT_FOUND or
  // INVALID_ARGUMENT where there is no such node or GPU.
  Result<PodId> Adopt(ShapeId shape, NodeId node, const Pick& pick);
  // Gives back exactly what the pod took. NOT_FOUND for a pod that is gone.
  Status Remove(PodId pod);
  const Pod* Find(PodId pod) const;
  // Pods of one node, in no order.
  std::span<const PodId> pods_of(NodeId node) const;
  size_t pod_count() const { return pod_count_; }

  // --- Readers.
  Snapshot GetSnapshot() const;
  // Grows with every change to a node. ChangesSince(v) gives the nodes that changed after version
  // v, oldest first, some more than once; false when that is too long ago, so all may have changed.
  uint64_t version() const { return version_; }
  bool ChangesSince(uint64_t version, std::vector<NodeId>* changed) const;

 private:
  struct PodSlot;

  NodeId NewNodeId();
  NodeChunk& Writable(NodeId id);
  void Touch(NodeId id);
  Status CheckSpec(const NodeSpec& spec) const;
  Status Describe(const NodeSpec& spec, std::vector<GpuState>* gpus, NodeState* state);
  void Install(NodeId id, NodeSpec spec, NodeState state, std::vector<GpuState> gpus);
  void DropNames(const NodeSpec& spec);
  Status CheckRoom(const NodeView& view, const Demand& demand, const Pick& pick, bool any) const;
  PodId Record(ShapeId shape, NodeId node, const Pick& pick);
  void Apply(const Pod& pod, int sign);
  void CountMilli(const NodeView& view, int sign);
  PodSlot* SlotOf(PodId pod);

  std::vector<std::string> models_, kinds_;
  GpuNames gpu_names_;
  std::vector<std::shared_ptr<NodeChunk>> chunks_;
  size_t size_ = 0;
  std::vector<NodeId> free_nodes_;  // ids of nodes that were removed
  std::unordered_map<std::string, NodeId> by_name_;
  std::vector<std::vector<PodId>> node_pods_;

  Shapes shapes_;
  std::vector<PodSlot> pods_;
  std::vector<uint32_t> free_slots_;
  size_t pod_count_ = 0;

  int64_t total_milli_ = 0;
  int64_t free_milli_ = 0;
  uint64_t version_ = 0;
  std::vector<NodeId> log_;  // a ring: the change that made version v is at v modulo its size
};

}  // namespace tessera::placement
