// SPDX-License-Identifier: Apache-2.0
// Reads all GPUs every `interval`, each on a thread of its own, so that a GPU that hangs delays no
// other. The sampler has its own session with the driver. It reopens the session when the driver
// was replaced or the session died, and closes the session when the driver was unloaded.
//
// A round ends when all GPUs have answered, at the latest after kRoundDeadline. The sampler calls
// `on_round` at the end of each round, and again for each later answer. Threads: lives on `runner`.
// Cost: a short-lived thread for each GPU in each round.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/exporter/gpu_sample.h"
#include "src/base/clock.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/gpu/blocking_caller.h"

namespace tessera::agent {

class Sampler {
 public:
  static constexpr Duration kRoundDeadline = std::chrono::milliseconds(100);
  // After this time without an answer a GPU has no sample.
  static constexpr Duration kReadDeadline = std::chrono::seconds(2);
  // For opening or closing a session.
  static constexpr Duration kOpenCloseDeadline = std::chrono::seconds(60);
  // How often the sampler checks whether the driver was replaced.
  static constexpr Duration kSessionCheckInterval = std::chrono::seconds(1);

  struct SampledGpu {
    std::shared_ptr<const GpuSample> sample;  // null: the GPU does not answer
    MonotonicTime answered_at{};              // time of the first query if it has never answered
    uint64_t late_queries = 0;                // queries that missed the deadline
    bool query_running = false;
  };

  // The arguments must outlive the object; `loader` is used on other threads. `on_round` is called
  // on the runner.
  Sampler(TaskRunner* runner, std::shared_ptr<gpu::NvmlLoader> loader, gpu::BlockingCaller* caller,
          std::shared_ptr<const CounterSpecs> counters, Duration interval,
          std::function<void()> on_round);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  void Start() { Tick(); }
  // Call when the driver may have been unloaded: closes the session without waiting for the next
  // round.
  void RefreshDriver() { CheckSession(); }
  // In the order of indices; empty without a session.
  const std::vector<SampledGpu>& gpus() const { return gpus_; }

 private:
  struct NvmlSession;

  void Tick();
  void StartRound();
  void CheckSession();
  void UseSession(std::shared_ptr<NvmlSession> session);
  void Close(std::shared_ptr<NvmlSession> session);
  void ReadGpu(size_t index);
  void OnRead(uint64_t generation, uint64_t round, size_t index, const Result<GpuSample>& sample);
  void OnOverdue(uint64_t generation, uint64_t round, size_t index);
  void OnAnswered(uint64_t round);

  TaskRunner* const runner_;
  const std::shared_ptr<gpu::NvmlLoader> loader_;
  gpu::BlockingCaller* const caller_;
  const std::shared_ptr<const CounterSpecs> counters_;
  const Duration interval_;
  const std::function<void()> on_round_;

  std::shared_ptr<NvmlSession> session_;
  bool checking_session_ = false;
  MonotonicTime next_check_{};
  std::string session_problem_;
  uint64_t generation_ = 0;  // number of the session; answers from earlier sessions are ignored
  std::vector<SampledGpu> gpus_;
  uint64_t round_ = 0;
  size_t awaited_answers_ = 0;  // in this round
  WeakPtrFactory<Sampler> weak_{this};
};

}  // namespace tessera::agent
