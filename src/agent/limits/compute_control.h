// SPDX-License-Identifier: Apache-2.0
// Divides the time of each GPU among the limited containers of this node. Every few milliseconds it
// passes the GPU time that their limiters have charged to the GPU's Arbiter
// (src/limiter/compute/arbiter.h). It writes the Arbiter's decisions into the containers' `limits`.
//
// A GPU is divided while a member has a request on it. Members without a request, which have a
// share of memory alone, then get what the requests leave. On a GPU without requests they are not
// limited, and their launches cost nothing.
//
// A container that is not a member keeps the rate of its grant. After this object is destroyed, all
// containers return to that rate when their lease of 50 ms has ended; members without a request
// keep the rate that they would get if all were busy.
//
// Threads: Update and TakeUse are called on one thread. The ticks run on another thread, which
// sleeps while no member has used a GPU. Cost of a tick: about 2,000 instructions for each member,
// and no system call; tests/bench/arbiter_bench.cc measures it.
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

// The use of one GPU by a container since the last call of TakeUse.
struct ComputeUse {
  double used = 0;      // fraction of the GPU's time
  double waiting = 0;   // average number of threads that waited for the share
  Duration waited_for;  // waiting time of all threads since the container started
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
    std::optional<double> utilization;  // fraction of the last second, reported by the driver
  };

  ComputeControl() = default;
  ~ComputeControl();
  ComputeControl(const ComputeControl&) = delete;
  ComputeControl& operator=(const ComputeControl&) = delete;

  // Replaces all members.
  void Update(std::vector<Member> members);
  // The use by a member since the last call for this member; nothing if the member is new or has
  // not used the GPU.
  std::optional<ComputeUse> TakeUse(const Uid& pod_uid, const std::string& container,
                                    const std::string& uuid);

 private:
  using Key = std::tuple<Uid, std::string, std::string>;  // pod, container, UUID
  struct MemberMeter {
    int64_t gpu_time_ns = 0, wait_time_ns = 0, read_at_ns = 0;  // latest reading, and its time
    double bias = 1;              // the arbiter's correction of `gpu_time_ns`
    double used_ns = 0;           // GPU time, corrected
    double reported_used_ns = 0;  // reported_*: at the last call of TakeUse
    int64_t reported_wait_ns = 0, reported_at_ns = 0;
  };
  struct KnownMember {
    limiter::Arbiter::Id id = 0;
    Member member;
    uint32_t index = 0;  // of the GPU in `limits` and in `usage`
    std::shared_ptr<ComputeUsageFile> usage;
  };
  // The data of a member that a tick needs.
  struct TickMember {
    limiter::Arbiter::Id id = 0;
    limiter::LimitsFile* limits = nullptr;
    ComputeUsageFile* usage = nullptr;
    uint32_t index = 0;
    MemberMeter* meter = nullptr;  // of `meters_`
  };
  struct GpuArbiter {
    limiter::Arbiter arbiter;
    int64_t next_tick_ns = 0;
    std::vector<TickMember> members;  // in the order of their ids, like in the arbiter
  };

  void Run();
  void SetMembers(std::vector<Member> members);
  static void StopLimiting(const Member& member, uint32_t index);
  void GroupByGpu();
  int64_t Tick(int64_t now);
  void TickGpu(int64_t now, GpuArbiter* gpu);
  void ReadMembers(int64_t now, const GpuArbiter& gpu);

  // Used only by the tick thread.
  std::map<Key, KnownMember> members_;
  std::map<std::string, GpuArbiter> gpus_;
  limiter::Arbiter::Id last_id_ = 0;
  // Buffers of a tick. They are members, so that ticks allocate nothing.
  std::vector<limiter::Arbiter::ContainerReading> readings_;
  std::vector<std::pair<MemberMeter*, ComputeTotals>> totals_;

  // Guards the members below: the ticks run on a thread of their own, so that nothing on the
  // caller's thread delays them.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::vector<Member>> update_;  // members that the tick thread has not taken yet
  std::map<Key, MemberMeter> meters_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::agent
