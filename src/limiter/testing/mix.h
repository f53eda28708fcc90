// SPDX-License-Identifier: Apache-2.0
// For tests: random containers on one GPU, and the share that each should get.
#pragma once

#include <cstdint>
#include <vector>

#include "src/limiter/testing/shared_gpu.h"

namespace tessera::limiter::testing {

class Mix {
 public:
  // 1 to 16 tenants with hard limits, elastic limits or weights. The fraction `new_grids` of the
  // tenants launches each kernel with a new grid.
  explicit Mix(uint64_t seed, double new_grids = 0);

  SharedGpuOptions& options() { return options_; }
  // The percentages of the GPU that the tenants should have used: by weight, and no tenant above
  // its limit or its demand. A tenant that could have used more, but waited for its own launches,
  // is still expected to get its share. The other tenants may use the time that this tenant missed.
  // All tenants share the time that the GPU loses between batches.
  std::vector<double> Expected(const SharedGpu& gpu) const;

 private:
  std::vector<double> DivideByWeight(const std::vector<double>& max_shares) const;

  SharedGpuOptions options_;
  std::vector<double> weights_, max_shares_, costs_;
};

}  // namespace tessera::limiter::testing
