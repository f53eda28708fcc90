// SPDX-License-Identifier: Apache-2.0
// For tests: random containers on one GPU, and what each of them should get.
#pragma once

#include <cstdint>
#include <vector>

#include "src/limiter/testing/shared_gpu.h"

namespace tessera::limiter::testing {

class Mix {
 public:
  // 1 to 16 tenants with hard limits, elastic ones and weights.
  explicit Mix(uint64_t seed);

  SharedGpuOptions& options() { return options_; }
  // The percentages of the GPU that the tenants should have got. By weight, none more than it may
  // or wants. A tenant that waits for its own launches more than the others leave it keeps its
  // claim, which it missed; what it did not use belongs to the others. What the GPU loses between
  // batches, all lose.
  std::vector<double> Expected(const SharedGpu& gpu) const;

 private:
  std::vector<double> Fill(const std::vector<double>& most) const;

  SharedGpuOptions options_;
  std::vector<double> weights_, most_, costs_;
};

}  // namespace tessera::limiter::testing
