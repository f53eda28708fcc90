// SPDX-License-Identifier: Apache-2.0
// Accuracy of compute limits in random mixes of programs, on a GPU in virtual time. By default only
// some mixes run:
//   TESSERA_COMPUTE_MIXES=<count> limiter_compute_test    runs <count> mixes
//   TESSERA_COMPUTE_FIRST_MIX=<seed>                      starts with another mix
// Figures: as in model_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "src/limiter/compute/tuning.h"
#include "src/limiter/testing/mix.h"
#include "src/limiter/testing/shared_gpu.h"

namespace tessera::limiter::testing {
namespace {

uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// True: 95 % of the tenants get their shares. `new_grids`: see Mix. `usual_count`: number of mixes
// by default.
bool MixesHold(double new_grids, uint64_t usual_count) {
  const uint64_t requested_count = NumberFromEnvironment("TESSERA_COMPUTE_MIXES", 0);
  const uint64_t count = requested_count == 0 ? usual_count : requested_count;
  const uint64_t first = NumberFromEnvironment("TESSERA_COMPUTE_FIRST_MIX", 7001);
  int held = 0, tenants = 0;
  double error = 0, deviation = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Mix mix(seed, new_grids);
    SharedGpu gpu(mix.options());
    gpu.RunWindows(kSecond, 7);
    const std::vector<double> wanted = mix.Expected(gpu);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto figures = gpu.UsageInOwnWindows(i);
      const bool holds = Holds(figures, wanted[i]);
      held += holds;
      ++tenants;
      error += std::abs(figures.mean - wanted[i]);
      deviation += figures.deviation;
      if (holds) continue;
      std::printf("  seed %lu tenant %zu of %zu: wanted %.1f, got %.1f / %.2f: %s\n", seed, i,
                  wanted.size(), wanted[i], figures.mean, figures.deviation,
                  mix.options().tenants[i].processes[0].name.c_str());
    }
  }
  std::printf("%d of %d tenants within 2 / 2 (%.1f %%), mean error %.2f, mean deviation %.2f\n",
              held, tenants, 100.0 * held / tenants, error / tenants, deviation / tenants);
  return held >= tenants * 95 / 100;
}

TEST(ComputeModelTest, RandomMixesGetTheirShares) { EXPECT_TRUE(MixesHold(0, 12)); }
TEST(ComputeModelTest, RandomMixesWithNewGridsGetTheirShares) { EXPECT_TRUE(MixesHold(0.3, 6)); }

}  // namespace
}  // namespace tessera::limiter::testing
