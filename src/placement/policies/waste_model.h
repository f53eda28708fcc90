// SPDX-License-Identifier: Apache-2.0
// How much of a node will be idle in the end: W(n), the expected idle thousandths of GPU on node n
// after a long stream of pods from a mix was offered to n alone. "What is left at the end" rather
// than "who fits now" is what makes 810 + 190 meet on one GPU, and CPU-hungry pods find CPU.
//
// Two estimates. The closed form looks at each GPU by itself, and at the CPU and memory that the
// pods on all of them will need (normal distributions): smooth, and blind to packing. Roll-outs
// pack 16 fixed sequences of pods onto the node: they see packing, and are rough. Both are
// functions of the mix and of the node, and of nothing else: not of the order in which nodes were
// looked at.
//
// Not for choosing nodes (terminal_waste.cc). Threads: one. Cost: a closed form is some ten
// nanoseconds, a roll-out one or two microseconds for a node in a state that was not seen before.
// Private to this room.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/placement/cluster.h"

namespace tessera::placement {

// A pod of the mix as the model sees it: `count` GPUs, `milli` on each.
struct MixPod {
  double weight = 0;  // any scale
  int count = 0;
  int milli = 0;
  int64_t cpu_milli = 0;
  int64_t memory = 0;
  ModelSet models;  // none means any
};

// What roll-outs depend on: model, CPU and memory in steps, and the slack of the GPUs in ascending
// order.
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
  // After a GPU with slack `from` is left with `to`, and the host with this.
  NodeKey With(int16_t from, int16_t to, int64_t cpu_milli, int64_t memory_bytes) const;
  void SetHost(int64_t cpu_milli, int64_t memory_bytes);
  uint64_t Hash() const;
};

// What the closed form needs of a node: sums over its GPUs.
struct WasteSums {
  float idle = 0;                         // thousandths
  float waste = 0;                        // of them idle in the end if CPU and memory were endless
  float cpu = 0, cpu_variance = 0;        // that the pods to come will ask for: cores
  float memory = 0, memory_variance = 0;  // GiB
};

class WasteModel {
 public:
  // Nothing is computed yet: Step does, model by model.
  WasteModel(std::vector<MixPod> mix, size_t models);
  ~WasteModel();
  WasteModel(const WasteModel&) = delete;
  WasteModel& operator=(const WasteModel&) = delete;

  // One step of some ten microseconds towards a model that can be asked; false when it can.
  bool Step();

  // One GPU of a model with this slack leaves or joins the sums.
  void Add(ModelId model, int slack, float sign, WasteSums* sums) const;
  // W by the closed form, of a node with these sums and this much CPU and memory left.
  float ClosedForm(const WasteSums& sums, int64_t cpu_milli, int64_t memory) const;
  // W by roll-outs.
  float RollOuts(const NodeKey& key);

 private:
  struct Tables;
  struct Memo;

  const Tables& TablesOf(ModelId model) const;

  std::vector<MixPod> mix_;
  std::vector<std::unique_ptr<Tables>> tables_;  // by model
  size_t built_ = 0;
  std::unique_ptr<Memo> memo_;
};

}  // namespace tessera::placement
