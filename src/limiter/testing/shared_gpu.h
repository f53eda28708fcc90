// SPDX-License-Identifier: Apache-2.0
// For tests: limited containers on one GPU in virtual time. Every process runs a Program through
// the limiter's Gate on a GpuModel; one Arbiter divides the GPU, as in the agent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/limiter/compute/arbiter.h"
#include "src/limiter/compute/gate.h"
#include "src/limiter/testing/gpu_model.h"
#include "src/limiter/testing/load.h"

namespace tessera::limiter::testing {

struct TenantOptions {
  ComputeShare share;
  std::vector<Load> processes;
  bool limited = true;
  int64_t start = 0, end = INT64_MAX;  // launches nothing from `end` on
};

struct SharedGpuOptions {
  std::vector<TenantOptions> tenants;
  GpuModelOptions gpu;
  int64_t length = 6'000'000'000;
  uint64_t seed = 1;
  int64_t agent_dies = INT64_MAX;  // when the agent ends, so that the ticks end
  double meter_error = 1;          // factor of all times that events report
  double contended_error = 1;      // a further factor while other processes have work on the GPU
  // When the first process of the first tenant is killed.
  int64_t kill_at = INT64_MAX;
  bool trims = true;  // the Arbiter gets NVML's measure of utilization
};

class SharedGpu {
 public:
  explicit SharedGpu(const SharedGpuOptions& options);
  ~SharedGpu();
  void Run();
  // Runs until every tenant has had `count` of its windows since `from`.
  void RunWindows(int64_t from, int count);

  // The percentage of the GPU that a tenant used in windows that slide by 100 ms.
  struct Figures {
    double mean = 0, deviation = 0, max = 0;
  };
  Figures UsageOf(size_t tenant, int64_t from = 1'000'000'000,
                  int64_t window = 1'000'000'000) const;
  // The window in which a share is kept: max(1 s, 50 K), where K is the length of the longest
  // kernel that the tenant has launched.
  int64_t WindowOf(size_t tenant) const;
  // Like UsageOf, in windows of length WindowOf.
  Figures UsageInOwnWindows(size_t tenant, int64_t from = 1'000'000'000) const {
    return UsageOf(tenant, from, WindowOf(tenant));
  }
  // The largest difference, in nanoseconds of GPU time, between the use of a tenant within a
  // stretch of time and `share` of that time, over all stretches since `from`.
  double SwingOf(size_t tenant, double share, int64_t from = 1'000'000'000) const;
  double bias(size_t tenant) const;
  int64_t ticks() const { return ticks_; }
  // For each stretch of work of the high class: nanoseconds until no low-class work was left.
  std::vector<int64_t> drains;

 private:
  struct Tenant;
  struct Process;

  void Handle(Process* process);
  void Launch(Process* process);
  void End(Process* process);
  void ClearSlot(Process* process);
  void Restart(Process* process);
  void WakeWaitingPrograms();
  void Tick();
  void Sample();
  int64_t NextTime() const;
  void RecordDrain();

  SharedGpuOptions options_;
  GpuModel gpu_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Tenant>> tenants_;
  std::vector<Process*> processes_;
  Arbiter arbiter_;
  std::vector<Arbiter::ContainerReading> readings_;
  int64_t now_ = 0, next_tick_ = 0, next_sample_ = 0, next_nvml_ = 0, next_trim_ = 1'000'000'000;
  int64_t ticks_ = 0;
  int64_t high_since_ = -1, high_until_ = -1'000'000'000;
};

// A container of one process with a hard limit, all of which is guaranteed.
TenantOptions HardLimit(double limit, const Load& load);

// A share holds if the mean and the deviation differ by at most this from what is wanted.
inline constexpr double kTolerancePoints = 2;
bool Holds(const SharedGpu::Figures& figures, double wanted);

// The percentage of the GPU that a load uses if it is alone and not limited.
double DemandOf(const Load& load);

}  // namespace tessera::limiter::testing
