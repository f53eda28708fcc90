// SPDX-License-Identifier: Apache-2.0
// How much of a node's idle GPU is of no use to the pods that are expected: the measure of the FGD
// experiments. For node n and pod m, F_n(m) is all idle thousandths where m cannot run on n for
// lack of CPU, of enough GPUs with enough left, or of the model; else those on GPUs that have less
// left than m wants of one. A pod without GPUs counts all. F_n(M) is the mean over the mix M.
//
// A pod with several asks counts as one with the largest of them and all its GPUs. Host memory does
// not count.
//
// Not for deciding (policies/fgd.cc). Threads: one. Cost: 20 … 60 ns a node of 8 GPUs, whatever the
// size of the mix, where pods ask for thousandths; pods that ask for bytes cost 10 ns each.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::placement {

class Fragmentation {
 public:
  // Weights are scaled to a sum of 1. With an empty mix nothing is fragmented.
  Fragmentation(const Cluster& cluster, std::span<const MixEntry> mix);
  ~Fragmentation();

  // F_n(M) in thousandths of a GPU.
  double Of(const NodeView& node);
  // The same as if the node had this CPU and these slacks left, one for each GPU.
  double Of(const NodeView& node, int64_t cpu_free, const int16_t* slack);

 private:
  struct Table;

  struct Expected {
    Demand demand;
    double weight = 0;
  };

  const Table& TableOf(ModelId model);
  double OfRegular(const NodeView& node, int64_t cpu_free, const int16_t* slack);
  double OfOne(const NodeView& node, int64_t cpu_free, const int16_t* slack,
               const Expected& pod) const;

  std::vector<Expected> regular_, irregular_;
  std::array<uint16_t, 1001> rank_{};  // by slack: distinct shares of the mix that fit in it
  size_t ranks_ = 0;
  float regular_weight_ = 0;
  std::vector<std::unique_ptr<Table>> tables_;  // by model
};

}  // namespace tessera::placement
