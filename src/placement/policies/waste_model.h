// SPDX-License-Identifier: Apache-2.0
// Terminal waste W(n): the expected idle thousandths of GPU on node n after a long stream of pods,
// drawn from the mix of recent arrivals, was offered to n alone. Fragmentation asks who fits now;
// terminal waste asks what is left in the end, so 810 + 190 meet on one GPU, and pods that need
// many cores go where cores would be left over.
//
// W is a weighted mean of two estimates.
// - Roll-outs: 16 fixed sequences of 48 pods are packed onto the node, tightest GPU first (common
//   random numbers). What is idle after 4 pods counts `early_weight`, and what is idle after 48
//   counts the rest: the cluster may run out of CPU before a node has seen a long stream. Roll-outs
//   see packing, and that pods without GPUs compete for CPU.
// - Closed form: each GPU is a renewal process of its own. With r thousandths left, P_r the chance
//   that the next pod fits, h_r = 1 - (1 - P_r)^40 the chance that one of the next 40 does, and g
//   what it takes:
//       w(r) = (1 - h_r) r + h_r E[w(r - g) | g <= r]
//   The same recursion gives mean and variance of the CPU and memory that the pods on all GPUs need
//   (normal distributions). GPU without CPU or memory to feed it is idle, too. The closed form has
//   no sampling noise, but does not see how pods of several GPUs pack, nor pods without GPUs: its
//   weight is f^1.5, at most half, where pods with GPUs ask for the fraction f of the mix's CPU.
//
// Device memory counts like compute: on a GPU model with m bytes, a pod of the mix takes the larger
// of its thousandths and its bytes / m.
//
// W depends on the mix and the node alone, and not on the order of questions. It is kept per node
// state, so that equal nodes and repeated questions cost a lookup.
//
// Not for choosing nodes (terminal_waste.cc). Threads: one. Cost: some ten nanoseconds for a known
// state, two microseconds for another. Private to this room.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::placement {

// A pod of the mix as the model sees it: `count` GPUs, `milli` and `bytes` on each.
struct MixPod {
  double weight = 0;  // any scale
  int count = 0;
  int milli = 0;
  int64_t bytes = 0;
  int64_t cpu_milli = 0;
  int64_t memory = 0;
  ModelSet models;  // none means any
};

// The state of a node: GPU model, CPU and memory in steps, slack of its GPUs in ascending order.
struct NodeKey {
  static constexpr size_t kMaxGpus = 16;  // of larger nodes the 16 with the most slack count
  static constexpr int64_t kCpuStep = 500;
  static constexpr int64_t kMemoryStep = int64_t{2} << 30;

  ModelId model = kNoModel;
  int16_t gpus = 0;
  int16_t cpu_steps = 0;
  int16_t memory_steps = 0;
  std::array<int16_t, kMaxGpus> slack{};

  bool operator==(const NodeKey&) const = default;
  // REQUIRES: `slack` has `count` entries.
  static NodeKey Of(ModelId model, int64_t cpu_milli, int64_t memory, const int16_t* slack,
                    size_t count);
  void SetHost(int64_t cpu_milli, int64_t memory_bytes);
  uint64_t Hash() const;
};

class WasteModel {
 public:
  // `device_memory` has the bytes of one GPU by model, 0 where unknown. Nothing is computed yet:
  // Step does, model by model. `early_weight`: the chance that the stream ends early.
  WasteModel(std::vector<MixPod> mix, std::vector<int64_t> device_memory, double early_weight,
             PolicyParts without = {});
  ~WasteModel();
  WasteModel(const WasteModel&) = delete;
  WasteModel& operator=(const WasteModel&) = delete;

  // One step of some ten microseconds towards a model that can be asked; false when it can.
  bool Step();

  float Waste(const NodeKey& key);

 private:
  struct Tables;
  struct Memo;

  const Tables& TablesOf(ModelId model) const;

  std::vector<MixPod> mix_;
  std::vector<int64_t> device_memory_;
  std::vector<std::unique_ptr<Tables>> tables_;  // by model
  size_t built_ = 0;
  const double early_weight_;
  const PolicyParts without_;
  std::unique_ptr<Memo> memo_;
};

}  // namespace tessera::placement
