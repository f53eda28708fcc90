// SPDX-License-Identifier: Apache-2.0
// Hard limits that together leave a part of the GPU idle, on a GPU in virtual time. Then the
// kernels of two containers often meet in the same way for seconds, so that an error of the
// estimate of their GPU time does not average out. By default only some lengths of kernels run;
//   TESSERA_COMPUTE_MIXES=1 limiter_compute_test    runs all
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "src/limiter/compute/tuning.h"
#include "src/limiter/testing/shared_gpu.h"

namespace tessera::limiter::testing {
namespace {

struct Tenant {
  double limit;
  double factor = 1;  // of the kernels' length
};
struct Case {
  const char* name;
  std::vector<Tenant> tenants;
  double spread = 0;  // Load::Kernel::spread
};
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"40, 50", {{0.4}, {0.5}}},
      {"25, 50", {{0.25}, {0.5}}},
      {"30, 60", {{0.3}, {0.6}}},
      {"20, 20", {{0.2}, {0.2}}},
      {"10, 80", {{0.1}, {0.8}}},
      {"30, 70", {{0.3}, {0.7}}},
      {"40, 50 of 1.7 the length", {{0.4}, {0.5, 1.7}}},
      {"50, 40 of 0.3 the length", {{0.5}, {0.4, 0.3}}},
      {"30, 30, 30", {{0.3}, {0.3}, {0.3}}},
      {"20, 30 of 0.2, 30 of 1.5", {{0.2}, {0.3, 0.2}, {0.3, 1.5}}},
      {"20, 20, 20, 20", {{0.2}, {0.2}, {0.2}, {0.2}}},
      {"40, 50, spread 0.05", {{0.4}, {0.5}}, 0.05},
      {"40, 50, spread 0.2", {{0.4}, {0.5}}, 0.2},
      {"40, 50, spread 0.5", {{0.4}, {0.5}}, 0.5},
  };
  return cases;
}

// Kernels around one turn of the driver, which is 2 ms, are the hardest.
std::vector<double> Lengths() {
  if (std::getenv("TESSERA_COMPUTE_MIXES") == nullptr) return {1.9 * kMs, 2.02 * kMs, 5 * kMs};
  return {0.5 * kMs, 1 * kMs, 1.9 * kMs, 2 * kMs, 2.01 * kMs, 2.02 * kMs, 2.1 * kMs, 2.5 * kMs,
          3 * kMs,   4 * kMs, 5 * kMs,   7 * kMs, 10 * kMs,   20 * kMs,   50 * kMs};
}

struct Result {
  int runs = 0, held = 0;
  double error = 0, deviation = 0;  // means over all tenants
  double max_excess = 0;            // maximum use of a tenant beyond its limit, in points
};

Result RunAll(int64_t agent_dies) {
  Result result;
  int tenants = 0;
  for (const Case& one : Cases()) {
    for (const double length : Lengths()) {
      SharedGpuOptions options{.length = 24 * kSecond, .agent_dies = agent_dies};
      for (const Tenant& tenant : one.tenants) {
        const Load load{.kernels = {{length * tenant.factor, one.spread}}};
        options.tenants.push_back(HardLimit(tenant.limit, load));
      }
      SharedGpu gpu(options);
      gpu.Run();
      bool holds = true;
      for (size_t i = 0; i < one.tenants.size(); ++i) {
        const auto figures = gpu.UsageInOwnWindows(i, 5 * kSecond);
        const double over = figures.mean - 100 * one.tenants[i].limit;
        holds &= Holds(figures, 100 * one.tenants[i].limit);
        result.max_excess = std::max(result.max_excess, over);
        result.error += std::abs(over);
        result.deviation += figures.deviation;
        ++tenants;
      }
      if (!holds) std::printf("  not held: %s, kernels of %.2f ms\n", one.name, length / kMs);
      result.held += holds;
      ++result.runs;
    }
  }
  result.error /= tenants;
  result.deviation /= tenants;
  std::printf("%d of %d within 2 / 2, mean error %.2f, mean deviation %.2f, at most %.1f over\n",
              result.held, result.runs, result.error, result.deviation, result.max_excess);
  return result;
}

TEST(StrictLimitsTest, HoldWhileTheGpuIsPartlyIdle) {
  const Result result = RunAll(INT64_MAX);
  EXPECT_GE(result.held, result.runs * 97 / 100);
  EXPECT_LE(result.deviation, 0.5);
  EXPECT_LE(result.max_excess, kTolerancePoints);
}

// Without the agent, a process does not know when other processes use the GPU, so it counts their
// turns as its own use. It may get less than its limit, but not more.
TEST(StrictLimitsTest, AreNotExceededAfterTheAgentHasDied) {
  EXPECT_LE(RunAll(3 * kSecond).max_excess, kTolerancePoints);
}

}  // namespace
}  // namespace tessera::limiter::testing
