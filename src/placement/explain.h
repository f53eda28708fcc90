// SPDX-License-Identifier: Apache-2.0
// Why a demand does not fit a node, and how a node scored: for the answers of the scheduler, Events
// and people. Says the same as Fits (fit.h), in words; decides nothing.
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

// What is missing: on a node, on one of its GPUs, or on either.
enum class Lack : uint8_t {
  kNothing,
  // Nodes only.
  kGone,
  kCordoned,
  kCpu,
  kMemory,
  kNoGpu,     // none of the kind that is asked for
  kTooFew,    // fewer GPUs of the kind than asked for, were they all free
  kBusy,      // enough GPUs, but not enough of them are free
  kTogether,  // each GPU container would fit, but not all of them at once
  // GPUs, and nodes where that is why there are not enough of them.
  kOtherKind,  // a MIG slice of another profile, or a slice instead of a GPU
  kOtherModel,
  kOtherGpu,  // not of the UUIDs that the pod allows
  kUnhealthy,
  kTooSmall,   // less memory in all than asked for, or nobody knows how much
  kHeldWhole,  // one pod has it to itself
  kShared,     // whole wanted, but pods have parts of it
  kCompute,
  kGpuMemory,
};
inline constexpr size_t kLacks = 18;
// "other-model": for JSON and metrics.
std::string_view IdOf(Lack lack);
// "other GPU model", as in "0/12 nodes: 12 other GPU model".
std::string_view PhraseOf(Lack lack);

// What keeps a demand off one node: the first thing that is missing.
struct NodeLack {
  Lack lack = Lack::kNothing;
  // Nobody who leaves makes room: the node itself has not what is wanted. Preemption cannot help.
  bool unresolvable = false;
  uint8_t ask = 0;     // the GPU ask that found too little
  int64_t wanted = 0;  // of CPU (thousandths), memory (bytes) or GPUs (count)
  int64_t free = 0;    // of the same
  uint16_t gpu_count = 0;
  // GPUs of the node by what each lacks for that ask; kNothing for those with room.
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

// One line: "3 GPUs wanted, 2 of 8 free: 4 held whole, 1 shared, 1 unhealthy". `names` is the
// cluster that numbered the models. Empty where nothing is missing.
std::string TextOf(const NodeLack& lack, const Demand& demand, const Cluster& names);
// "held whole by a pod", "0.3 GPU wanted, 0.2 free". Empty where nothing is missing.
std::string TextOf(const GpuLack& lack);

// The whole cluster in one line, most frequent first, as kube-scheduler sums up:
// "0/1213 nodes have room: 800 insufficient free GPUs, 300 other GPU model, 113 insufficient cpu".
class LackCounts {
 public:
  void Add(const NodeLack& lack) { ++counts_[static_cast<size_t>(lack.lack)]; }
  size_t count(Lack lack) const { return counts_[static_cast<size_t>(lack)]; }
  std::string Text() const;

 private:
  std::array<size_t, kLacks> counts_{};
};
// Of all nodes that are present.
LackCounts CountLacks(const Cluster& cluster, const Demand& demand);

// All there is to say about one node for one demand.
struct NodeReport {
  NodeLack lack;
  std::string text;                        // of `lack`
  std::vector<std::vector<GpuLack>> asks;  // for each GPU ask, for each GPU by position
  std::optional<float> score;              // where it fits
  std::optional<Pick> pick;
  std::vector<ScoreTerm> terms;
};
// REQUIRES: node < cluster.size(). Asks the policy, so it may score all nodes for a new shape.
NodeReport ExplainNode(const Cluster& cluster, Policy& policy, ShapeId shape, NodeId node);

}  // namespace tessera::placement
