// SPDX-License-Identifier: Apache-2.0
// Terminal waste W(n): the idle thousandths of GPU that are expected on node n after a long stream
// of pods, drawn from the mix of recent arrivals, was offered to n alone. Fragmentation measures
// which pods fit now; terminal waste measures the capacity that stays idle in the end. So pods of
// 810 and 190 thousandths share a GPU, and pods that need many cores go to nodes with spare cores.
//
// W is a weighted mean of two estimates:
// - Roll-outs: 16 fixed sequences of 48 pods are packed onto the node, tightest GPU first. The idle
//   GPU after 4 pods has the weight `early_weight`, the idle GPU after 48 pods the rest, because
//   the cluster may run out of CPU before a node has received a long stream. Roll-outs model how
//   pods pack, and pods without GPUs that compete for CPU. All nodes get the same sequences, so
//   that differences between nodes are not noise.
// - Closed form: each GPU is an independent renewal process. With r thousandths left, P_r is the
//   chance that the next pod fits, h_r = 1 - (1 - P_r)^40 the chance that any of the next 40 pods
//   fits, and g the thousandths that this pod takes:
//     w(r) = (1 - h_r) r + h_r E[w(r - g) | g <= r]
//   The same recursion gives mean and variance of the CPU and memory that the pods on all GPUs need
//   (normal distributions). If CPU or memory is missing for a fraction of these pods, the same
//   fraction of the GPU counts as idle. The closed form has no sampling noise, but ignores how pods
//   of several GPUs pack, and pods without GPUs. Its weight is therefore f^1.5, at most half, with
//   f the fraction of the mix's CPU that pods with GPUs request.
// Device memory counts like compute: on a GPU model with m bytes, a pod of the mix takes the larger
// of its thousandths and its bytes / m.
//
// W depends only on the mix and the node, not on the order of calls. It is cached by node state, so
// that equal nodes and repeated calls cost a lookup.
//
// Does not choose nodes (tessera.cc). Threads: one. Cost: some ten nanoseconds for a cached state,
// two microseconds otherwise. Included only in src/placement.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::placement {

// A pod of the mix as the model uses it: `count` GPUs, with `milli` and `bytes` on each.
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
  static constexpr size_t kMaxGpus = 16;  // on larger nodes the 16 GPUs with the most slack count
  static constexpr int64_t kCpuStepMilli = 500;
  static constexpr int64_t kMemoryStepBytes = int64_t{2} << 30;

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
  // `device_memory` has the bytes of one GPU by model, 0 if unknown. `early_weight` is the chance
  // that the stream ends early. The constructor computes nothing; Step computes model by model.
  WasteModel(std::vector<MixPod> mix, std::vector<int64_t> device_memory, double early_weight,
             PolicyParts excluded_parts = {});
  ~WasteModel();
  WasteModel(const WasteModel&) = delete;
  WasteModel& operator=(const WasteModel&) = delete;

  // Computes one step of some ten microseconds; returns false once the model is complete.
  bool Step();

  float Waste(const NodeKey& key);

 private:
  struct Tables;
  struct Memo;

  const Tables& TablesOf(ModelId model) const;

  std::vector<MixPod> mix_;
  std::vector<int64_t> device_memory_;
  std::vector<std::unique_ptr<Tables>> tables_;  // by model
  size_t built_models_ = 0;
  const double early_weight_;
  const PolicyParts excluded_parts_;
  std::unique_ptr<Memo> memo_;
};

}  // namespace tessera::placement
