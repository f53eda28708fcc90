// SPDX-License-Identifier: Apache-2.0
// Explains why a demand does not fit on a node, and which score a node got, for scheduler
// responses, Events and users. Always agrees with Fits (fit.h), and decides nothing.
//
// Cost: ShortfallOf makes one pass over the GPUs of a node and does not allocate, so that one
// answer can cover 5,000 nodes; texts allocate. Threads: pure functions; ShortfallCounts is a
// value.
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

// Why a node, or one of its GPUs, cannot serve a demand.
enum class UnfitReason : uint8_t {
  kNothing,
  // Reasons of nodes only.
  kGone,
  kCordoned,
  kCpu,
  kMemory,
  kNoGpu,             // no GPU of the requested kind
  kTooFew,            // fewer GPUs of the requested kind than requested, even if all were free
  kBusy,              // enough GPUs, but not enough of them are free
  kNotAllContainers,  // each GPU container fits alone, but not all together
  // Reasons of GPUs, and of nodes where this reason leaves too few GPUs.
  kOtherKind,  // a MIG slice of another profile, or a slice instead of a GPU
  kOtherModel,
  kOtherGpu,  // a UUID that the pod does not allow
  kUnhealthy,
  kTooSmall,   // less total memory than requested, or unknown memory
  kHeldWhole,  // one pod holds the whole GPU
  kShared,     // a whole GPU wanted, but pods hold parts of it
  kCompute,
  kGpuMemory,
};
inline constexpr size_t kUnfitReasonCount = 18;
// The name of a reason in JSON and metrics: "other-model".
std::string_view MetricLabelOf(UnfitReason reason);

// Why a demand does not fit on one node: the first reason found.
struct NodeShortfall {
  UnfitReason reason = UnfitReason::kNothing;
  // The pod would not fit even if the node had no pods, so preemption cannot help.
  bool unresolvable = false;
  uint8_t gpu_demand_index = 0;  // index of the GPU demand for which too few GPUs fit
  int64_t wanted = 0;            // CPU in thousandths, memory in bytes, or number of GPUs
  int64_t free = 0;              // in the unit of `wanted`
  uint16_t gpu_count = 0;
  // Number of GPUs by reason for that GPU demand; kNothing counts GPUs with room.
  std::array<uint8_t, kUnfitReasonCount> gpus{};

  bool ok() const { return reason == UnfitReason::kNothing; }
};

// Returns kNothing if and only if Fits(node, demand).
NodeShortfall ShortfallOf(const NodeView& node, const Demand& demand);

// Why one GPU cannot serve one GPU of a GPU demand. `wanted` and `free` are thousandths (kCompute,
// kShared) or bytes (kGpuMemory, kTooSmall), else 0.
struct GpuShortfall {
  UnfitReason reason = UnfitReason::kNothing;
  int64_t wanted = 0;
  int64_t free = 0;
  bool operator==(const GpuShortfall&) const = default;
};
GpuShortfall ShortfallOf(const GpuState& gpu, const GpuDemand& gpu_demand, const Demand& demand);

// One line: "3 GPUs wanted, 2 of 8 free: 4 held whole, 1 shared, 1 unhealthy"; "" if nothing is
// missing. `cluster` names the models.
std::string TextOf(const NodeShortfall& shortfall, const Demand& demand, const Cluster& cluster);
// "held whole by a pod", "0.3 GPU wanted, 0.2 free"; "" if nothing is missing.
std::string TextOf(const GpuShortfall& shortfall);

// Summarizes the whole cluster in one line like kube-scheduler, most frequent reason first: "0/1213
// nodes have room: 800 insufficient free GPUs, 300 other GPU model, 113 insufficient cpu".
class ShortfallCounts {
 public:
  void Add(const NodeShortfall& shortfall) { ++counts_[static_cast<size_t>(shortfall.reason)]; }
  size_t count(UnfitReason reason) const { return counts_[static_cast<size_t>(reason)]; }
  std::string Text() const;
  // "0/1213 nodes have room"
  std::string TextOfRoom() const;

 private:
  std::array<size_t, kUnfitReasonCount> counts_{};
};
// Counts all present nodes.
ShortfallCounts CountShortfalls(const Cluster& cluster, const Demand& demand);

// The full explanation of one node for one demand.
struct NodeReport {
  NodeShortfall shortfall;
  std::string text;                                    // TextOf(shortfall)
  std::vector<std::vector<GpuShortfall>> gpu_demands;  // by GPU demand, then by position of the GPU
  std::optional<float> score;                          // if it fits
  std::optional<Pick> pick;
  std::vector<ScoreTerm> terms;
};
// REQUIRES: node < cluster.size(). Calls the policy, which may score all nodes for a new shape.
NodeReport ExplainNode(const Cluster& cluster, Policy& policy, ShapeId shape, NodeId node);

}  // namespace tessera::placement
