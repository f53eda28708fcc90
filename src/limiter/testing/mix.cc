// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/testing/mix.h"

#include <algorithm>

namespace tessera::limiter::testing {
namespace {

constexpr double kLostToTurns = 0.007;
constexpr double kTolerance = 0.02;

// Minimum GPU time for a nanosecond of a program's work. Before each batch that the program waits
// for, the GPU switches to its context, or idles for longer; a controller that only delays launches
// can avoid neither.
double CostOf(const Load& load, const GpuModelOptions& gpu) {
  if (load.sync_every == 0) return 1;
  double mean = 0;
  for (const Load::Kernel& kernel : load.kernels) {
    mean += kernel.length / double(load.kernels.size());
  }
  return 1 + double(gpu.switch_cost) / (mean * load.sync_every);
}

// The length of a kernel is constant, or depends on its blocks.
void UseNewGrids(std::mt19937_64* random, Load* load) {
  constexpr double kPowers[] = {0, 0.5, 1};
  load->grids = Load::Grids::kNew;
  load->power = kPowers[(*random)() % 3];
  load->name += ", new grids to the power of " + std::to_string(load->power);
}

}  // namespace

Mix::Mix(uint64_t seed, double new_grids) {
  // Grids have random numbers of their own, so that new grids change nothing else in the mix.
  std::mt19937_64 random(seed), grids(seed + 1);
  const auto uniform = [&] { return double(random() >> 11) * 0x1p-53; };
  options_.seed = seed;
  options_.gpu.seed = seed * 7 + 1;
  options_.length = 8'000'000'000;
  std::vector<double> parts(1 + random() % 16);
  double sum = 0, requested = 0, weights = 0;
  for (double& part : parts) sum += part = 0.2 + uniform();
  const double total = 0.5 + 0.5 * uniform();
  for (const double part : parts) {
    TenantOptions tenant;
    tenant.processes = {RandomLoad(&random)};
    if (double(grids() >> 11) * 0x1p-53 < new_grids) UseNewGrids(&grids, &tenant.processes[0]);
    const double share = std::clamp(part / sum * total, 0.02, 0.9), kind = uniform();
    if (kind < 0.75) {
      const double limit = kind < 0.5 ? share : std::min(1.0, share * (1 + uniform()));
      tenant.share = {.request = share, .limit = limit};
      requested += share;
    } else {
      tenant.share = {.weight = 1 + double(random() % 4)};
      weights += tenant.share.weight;
    }
    max_shares_.push_back(std::min(tenant.share.limit > 0 ? tenant.share.limit : 1,
                                   DemandOf(tenant.processes[0]) / 100));
    costs_.push_back(CostOf(tenant.processes[0], options_.gpu));
    options_.tenants.push_back(std::move(tenant));
  }
  const double rest = std::max(0.01, 1 - requested);
  for (const TenantOptions& tenant : options_.tenants) {
    const ComputeShare& share = tenant.share;
    weights_.push_back(share.request > 0 ? share.request : rest * share.weight / weights);
  }
}

std::vector<double> Mix::DivideByWeight(const std::vector<double>& max_shares) const {
  std::vector<double> shares(max_shares.size());
  double low = 0, high = 1000;
  for (int step = 0; step < 100; ++step) {
    const double level = (low + high) / 2;
    double sum = 0;
    for (size_t i = 0; i < max_shares.size(); ++i) {
      shares[i] = std::min(level * weights_[i], max_shares[i]);
      sum += costs_[i] * shares[i];
    }
    (sum < 1 - kLostToTurns ? low : high) = level;
  }
  return shares;
}

std::vector<double> Mix::Expected(const SharedGpu& gpu) const {
  std::vector<double> max_shares = max_shares_;
  const std::vector<double> claims = DivideByWeight(max_shares);
  std::vector<double> shares = claims;
  std::vector<bool> missed(max_shares.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < max_shares.size(); ++i) {
      const double got = gpu.UsageInOwnWindows(i).mean / 100;
      if (missed[i] || got >= shares[i] - kTolerance) continue;
      max_shares[i] = got;
      missed[i] = changed = true;
    }
    if (changed) shares = DivideByWeight(max_shares);
  }
  for (size_t i = 0; i < max_shares.size(); ++i)
    shares[i] = 100 * (missed[i] ? claims[i] : shares[i]);
  return shares;
}

}  // namespace tessera::limiter::testing
