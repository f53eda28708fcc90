// SPDX-License-Identifier: Apache-2.0
// Measures how much idle GPU of a node is useless to the expected pods, as the FGD experiments
// define it. F_n(m), for node n and pod m, is in thousandths of a GPU:
// - all idle thousandths if m cannot run on n (too little CPU, too few GPUs with enough slack,
// another model), or if m has no GPUs;
// - otherwise the idle thousandths of those GPUs whose slack is smaller than m's demand of one GPU.
// F_n(M) is the mean over the mix M. A pod with several GPU demands counts as if each of its GPUs
// had the largest demand. Host memory does not count.
//
// Does not choose nodes (policies/fgd.cc does). Threads: one. Cost: 20 … 60 ns for a node of 8 GPUs
// and a mix of any size, if pods request thousandths; each pod that requests bytes adds 10 ns.
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
  // Scales the weights to a sum of 1. With an empty mix nothing is fragmented.
  Fragmentation(const Cluster& cluster, std::span<const MixEntry> mix);
  ~Fragmentation();

  // F_n(M) in thousandths of a GPU.
  double Of(const NodeView& node);
  // F_n(M) if the node had this free CPU and these slacks, one for each GPU.
  double Of(const NodeView& node, int64_t cpu_free, const int16_t* slack);

 private:
  struct ModelTable;

  struct ExpectedPod {
    Demand demand;
    double weight = 0;
  };

  const ModelTable& TableOf(ModelId model);
  double OfRegularPods(const NodeView& node, int64_t cpu_free, const int16_t* slack);
  double OfPod(const NodeView& node, int64_t cpu_free, const int16_t* slack,
               const ExpectedPod& pod) const;

  std::vector<ExpectedPod> regular_, irregular_;  // see IsRegular in fragmentation.cc
  std::array<uint16_t, 1001> rank_{};  // by slack: number of distinct shares of the mix that fit
  size_t ranks_ = 0;
  float regular_weight_ = 0;
  std::vector<std::unique_ptr<ModelTable>> tables_;  // by model
};

}  // namespace tessera::placement
