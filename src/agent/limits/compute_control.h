// SPDX-License-Identifier: Apache-2.0
// Divides the time of GPUs between the limited containers of this node: reads every few
// milliseconds what their limiters have charged, asks an Arbiter for each GPU
// (src/limiter/compute/arbiter.h), and writes what it decides into their `limits`.
//
// A container that is not among the members keeps to the rate that its `limits` were made with;
// so do all when this is gone, after the lease of 50 ms.
//
// Threads: Update and Used are called on one thread; the work is done on another, which sleeps
// while no member has used a GPU. Cost of a tick: some 2,000 instructions for each member, and no
// system call; tests/bench/arbiter_bench.cc measures it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "src/agent/limits/compute_usage.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/uid.h"
#include "src/limiter/compute/arbiter.h"
#include "src/limiter/limits_file.h"

namespace tessera::agent {

// What a container has had of one GPU since it was last asked for.
struct ComputeUse {
  double used = 0;      // part of the GPU
  double waiting = 0;   // threads that waited for the share, on average
  Duration waited_for;  // by all threads, since the container started
};

class ComputeControl {
 public:
  // One container on one GPU.
  struct Member {
    Uid pod_uid;
    std::string container, uuid;
    limiter::ComputeShare share;
    std::shared_ptr<limiter::LimitsFile> limits;
    std::shared_ptr<const Fd> usage;    // null until a process has used a GPU
    std::optional<double> utilization;  // by the driver, in the last second
  };

  ComputeControl() = default;
  ~ComputeControl();
  ComputeControl(const ComputeControl&) = delete;
  ComputeControl& operator=(const ComputeControl&) = delete;

  // These are all members from now on.
  void Update(std::vector<Member> members);
  // What a member has used since the last call for it; nothing for one that is new, or has not used
  // the GPU.
  std::optional<ComputeUse> Used(const Uid& pod_uid, const std::string& container,
                                 const std::string& uuid);

 private:
  using Key = std::tuple<Uid, std::string, std::string>;  // pod, container, UUID
  struct Meter {
    int64_t metered = 0, waited = 0, at = 0;  // as the thread has read it
    double bias = 1;                          // the arbiter's correction of `metered`
    double used = 0;                          // GPU time in ns, corrected
    double told_used = 0;                     // told_*: at the last call of Used
    int64_t told_waited = 0, told_at = 0;
  };
  struct Known {
    limiter::Arbiter::Id id = 0;
    Member member;
    uint32_t index = 0;  // of the GPU in both files
    std::shared_ptr<ComputeUsageFile> usage;
  };
  // What a tick needs of a member.
  struct OnGpu {
    limiter::Arbiter::Id id = 0;
    limiter::LimitsFile* limits = nullptr;
    ComputeUsageFile* usage = nullptr;
    uint32_t index = 0;
    Meter* meter = nullptr;  // of `meters_`
  };
  struct Gpu {
    limiter::Arbiter arbiter;
    int64_t next = 0;
    std::vector<OnGpu> members;  // in the order of their Ids, as the arbiter has them
  };

  void Run();
  void Take(std::vector<Member> members);
  void SortByGpu();
  int64_t Tick(int64_t now);
  void TickGpu(int64_t now, Gpu* gpu);
  void ReadMembers(int64_t now, const Gpu& gpu);

  // The thread's own.
  std::map<Key, Known> known_;
  std::map<std::string, Gpu> gpus_;
  limiter::Arbiter::Id last_id_ = 0;
  // Buffers of a tick. They are members, so that ticks allocate nothing.
  std::vector<limiter::Arbiter::Reading> readings_;
  std::vector<std::pair<Meter*, ComputeTotals>> totals_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::vector<Member>> update_;
  std::map<Key, Meter> meters_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::agent
