// SPDX-License-Identifier: Apache-2.0
// Explains why a demand does not fit on a node, and how a node scored, for scheduler responses,
// Events and people. It always agrees with Fits (fit.h) and decides nothing.
//
// Cost: WhyNot is a pass over the GPUs of a node without allocation, for 5,000 nodes in one answer;
// texts allocate. Threads: pure functions; LackCounts is a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/demand.h"
#include "src/placement/policy.h"

namespace tessera::placement {

// What a node, or one of its GPUs, lacks.
enum class Lack : uint8_t {
  kNothing,
  // Nodes only.
  kGone,
  kCordoned,
  kCpu,
  kMemory,
  kNoGpu,     // none of the requested kind
  kTooFew,    // fewer GPUs of the requested kind than asked for, even if all were free
  kBusy,      // enough GPUs, but not enough of them are free
  kTogether,  // each GPU container fits alone, but not all together
  // GPUs, and nodes with too few GPUs for this reason.
  kOtherKind,  // a MIG slice of another profile, or a slice instead of a GPU
  kOtherModel,
  kOtherGpu,  // a UUID that the pod does not allow
  kUnhealthy,
  kTooSmall,   // less total memory than asked for, or unknown memory
  kHeldWhole,  // one pod holds the whole GPU
  kShared,     // a whole GPU wanted, but pods hold parts of it
  kCompute,
  kGpuMemory,
};
inline constexpr size_t kLacks = 18;
// "other-model": for JSON and metrics.
std::string_view IdOf(Lack lack);
// "other GPU model", as in "0/12 nodes: 12 other GPU model".
std::string_view PhraseOf(Lack lack);

// Why a demand does not fit on one node: the first lack found.
struct NodeLack {
  Lack lack = Lack::kNothing;
  // The node itself is too small, whatever pods leave it; preemption cannot help.
  bool unresolvable = false;
  uint8_t ask = 0;     // the GPU ask that found too few GPUs
  int64_t wanted = 0;  // of CPU (thousandths), memory (bytes) or GPUs (count)
  int64_t free = 0;    // in the unit of `wanted`
  uint16_t gpu_count = 0;
  // How many GPUs of the node have each lack for that ask; kNothing counts those with room.
  std::array<uint8_t, kLacks> gpus{};

  bool ok() const { return lack == Lack::kNothing; }
};

// kNothing exactly where Fits(node, demand).
NodeLack WhyNot(const NodeView& node, const Demand& demand);

// What one GPU lacks for one GPU of an ask. `wanted` and `free` are thousandths (kCompute, kShared)
// or bytes (kGpuMemory, kTooSmall), else 0.
struct GpuLack {
  Lack lack = Lack::kNothing;
  int64_t wanted = 0;
  int64_t free = 0;
  bool operator==(const GpuLack&) const = default;
};
GpuLack WhyNot(const GpuState& gpu, const GpuAsk& ask, const Demand& demand);

// One line: "3 GPUs wanted, 2 of 8 free: 4 held whole, 1 shared, 1 unhealthy"; "" if nothing is
// missing. `names` is the cluster that numbered the models.
std::string TextOf(const NodeLack& lack, const Demand& demand, const Cluster& names);
// "held whole by a pod", "0.3 GPU wanted, 0.2 free"; "" if nothing is missing.
std::string TextOf(const GpuLack& lack);

// Summarizes the whole cluster in one line like kube-scheduler, most frequent lack first:
// "0/1213 nodes have room: 800 insufficient free GPUs, 300 other GPU model, 113 insufficient cpu".
class LackCounts {
 public:
  void Add(const NodeLack& lack) { ++counts_[static_cast<size_t>(lack.lack)]; }
  size_t count(Lack lack) const { return counts_[static_cast<size_t>(lack)]; }
  std::string Text() const;

 private:
  std::array<size_t, kLacks> counts_{};
};
// Counts all present nodes.
LackCounts CountLacks(const Cluster& cluster, const Demand& demand);

// The full explanation of one node for one demand.
struct NodeReport {
  NodeLack lack;
  std::string text;                        // of `lack`
  std::vector<std::vector<GpuLack>> asks;  // for each GPU ask, for each GPU by position
  std::optional<float> score;              // where it fits
  std::optional<Pick> pick;
  std::vector<ScoreTerm> terms;
};
// REQUIRES: node < cluster.size(). Calls the policy, which may score all nodes for a new shape.
NodeReport ExplainNode(const Cluster& cluster, Policy& policy, ShapeId shape, NodeId node);

}  // namespace tessera::placement
