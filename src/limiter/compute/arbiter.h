// SPDX-License-Identifier: Apache-2.0
// Divides the time of one GPU between the limited containers that use it. The agent drives it:
//
//   Set, Remove         when a container with a limit starts, changes or ends
//   Tick                at the time that the previous Tick returned, at most 16 ms later. Takes a
//                       ContainerReading of every due container: the first `charge.slots` lines of
//                       its ComputeUsage for this GPU. Afterwards the agent writes every Allowance
//                       to the ComputeLimit of its container, and every ProcessPart to its
//                       ComputePart (WriteAllowance, WritePart)
//   RecordUtilization   once a second, with NVML's measure of each container's processes
//
// Tick has no clock and reads no file. Containers can write any value into their lines. A container
// with false values harms itself. It takes from other containers at most the GPU time that NVML
// does not report. A low-class container with false values delays a high class by at most 8 ms at
// each stop. A program that waits for its own launches cannot use its share beside programs that
// keep the GPU busy. So its container gets turns, in which the other containers launch nothing
// (DecideTurn).
// Without an agent, the limiter itself enforces hard limits, by `cap` and `floor` of ComputeLimit.
// Threads: one. Cost of a tick: linear in the number of containers, and n log n in the number of
// processes that were active within the last 50 ms. Ticks allocate nothing once all containers are
// known; tests/bench/arbiter_bench.cc measures them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "src/limiter/compute/tuning.h"
#include "src/limiter/region.h"

namespace tessera::limiter {

enum class PriorityClass { kHigh, kNormal, kLow };

// Rates are fractions of the GPU.
struct ComputeShare {
  double request = 0;  // guaranteed while the container has work; 0: follows from `weight`
  double limit = 0;    // maximum; 0: all that other containers leave (work-conserving)
  double weight = 1;   // with request 0: weight in the division of what the requests leave
  PriorityClass priority = PriorityClass::kNormal;
  bool operator==(const ComputeShare&) const = default;
};

class Arbiter {
 public:
  using Id = uint64_t;

  // One line of ComputeUsage::slots.
  struct ProcessReading {
    uint32_t slot = 0;
    int64_t metered = 0, in_flight = 0, last_launch = 0, last_long_work = 0, last_wait = 0,
            last_written = 0, longest = 0, last_limited = 0;
  };
  struct ContainerReading {
    Id id = 0;
    int64_t charged = 0, copied = 0;
    std::vector<ProcessReading> processes;
  };

  struct Allowance {
    Id id = 0;
    uint32_t epoch = 0, flags = 0, bias = kOne, cap = 0, floor = 0, window_us = 0;
    int64_t pool = 0, lease_end = 0;
  };
  struct ProcessPart {
    Id id = 0;
    uint32_t slot = 0, part = kOne, processes = 1;
    int64_t part_integral = 0, at = 0;
  };
  struct Division {
    std::vector<Allowance> allowances;  // of all containers, in the order of their Ids
    std::vector<ProcessPart> parts;     // of all processes in the readings, in the same order
    int64_t next_tick = 0;  // when to call Tick again: a multiple of the interval, for all Arbiters
  };

  // An unchanged share has no effect.
  void Set(Id id, const ComputeShare& share);
  // Starts with the bias that an earlier arbiter found for the container. 1: no correction.
  void ResumeBias(Id id, double bias);
  void Remove(Id id);
  // True: a tick at this time needs a reading of the container. Idle containers are rarely read.
  bool IsDue(int64_t now, Id id) const;
  // `readings` may lack containers that are not due or that could not be read.
  const Division& Tick(int64_t now, std::span<const ContainerReading> readings);
  // `used` is the mean part of the GPU that NVML reports for the container's processes in the
  // second before `now`.
  void RecordUtilization(int64_t now, Id id, double used);

 private:
  static constexpr Id kNoTurn = ~Id{0};
  // If less work than this is in flight, the GPU is about to idle.
  static constexpr int64_t kDrained = kMillisecond / 4;

  struct ProcessState {
    uint32_t slot = 0;
    size_t rank = 0;  // in short_active_
    int64_t metered = 0, part_integral = 0, part_integral_at = 0, read_at = 0;
    int64_t busy_at = 0;  // when work was last in flight
    int64_t first_read_at = 0;
    int64_t sampled_time = 0;  // GPU time since the last RecordUtilization that NVML includes
    double rate = 0;           // exponential mean of the fraction of the GPU that it uses
    double part = 1;
    int64_t in_flight = 0;
    bool is_active = false, has_long_work = false, was_read = false;
    double TurnFraction() const { return std::min(1.0, double(in_flight) / double(kQuantum)); }
  };
  // The factor that corrects a container's metered GPU time by NVML's measure, computed from
  // averages since the load last changed.
  struct BiasEstimate {
    double bias = 1;
    double mean_metered = 0, mean_nvml = 0;
    double last_nvml = 0;
    double noise = 0;  // mean difference of NVML's measures of successive seconds of the same load
    int samples = 0;
  };
  // A container's metered GPU time, and the factors that correct it. The events that time launches
  // are inexact while the driver also gives turns to other containers. So there is one factor for
  // times with other active containers and one for times without.
  struct MeterCorrection {
    int64_t updated_at = 0;                      // time of the last call of RecordUtilization
    int64_t time_alone = 0, time_contended = 0;  // GPU time since then
    // GPU time since then that NVML leaves out: of copies and of processes that have ended.
    int64_t time_unsampled = 0;
    int64_t time_young = 0;      // GPU time since then of processes that have just started
    int64_t ended_at = 0;        // when a process last ended
    double unsampled_part = 0;   // of the GPU time, at the last call
    bool was_contended = false;  // `time_contended` was not 0 at the last call
    int64_t longest = 0;         // of the container, in the work that it does now
    int64_t had_length_at = 0;   // when its launches last had about the length `longest`
    BiasEstimate bias_alone, bias_contended;
  };
  struct ContainerState {
    Id id = 0;
    ComputeShare share;
    std::vector<ProcessState> processes;  // sorted by slot
    uint32_t epoch = 1, flags = 0;
    double weight = 0, limit = 1;
    // True: the container is stopped while a high class works. True for the low class, and for
    // normal containers without a request while a container of the low class has a request.
    // Otherwise such normal containers would use the GPU whenever the low class is stopped.
    bool is_low = false;
    int64_t read_at = 0, stopped_at = 0;
    int64_t charged = 0, copied = 0, pool = 0, used_since_tick = 0;
    int64_t in_flight = 0, last_launch = 0, last_wait = 0, last_limited = 0, longest = 0;
    bool is_known = false;    // was read at least once
    bool is_present = false;  // worked recently (kAbsentTime), and is not stopped
    bool is_idle = true;      // no work in flight, and none recently (kIdleTime)
    // Idle, at its hard limit, or without a backlog while most of its lead is unused.
    bool is_below_share = true;
    bool is_stopped = false;  // kComputeStop is set
    // While another container has a turn, this container is held. Waits during this time and
    // shortly after it do not prove a backlog. `last_denied` is the time of the last wait that
    // proves a backlog.
    bool is_held = false, has_turn = false, waits_for_low_class = false;
    int64_t held_until = 0, last_denied = 0, last_without_backlog = 0;
    double owed_time = 0;            // GPU time that the container was entitled to and did not use
    double turn_utilization = 1;     // part of the GPU that the container uses in its turns
    bool was_alone_in_turn = false;  // in a turn at the last tick, without work of others
    size_t active_processes = 0;
    bool is_contended = false;  // at the last tick: processes of other containers were active
    MeterCorrection meter;
    int64_t last_activity() const { return std::max(last_launch, last_wait); }
    const BiasEstimate& bias_estimate() const {
      return is_contended ? meter.bias_contended : meter.bias_alone;
    }
  };

  static bool HasAwaitedKernels(const ContainerState& container);
  static bool IsAtLimit(int64_t now, const ContainerState& container);
  const ContainerState* Find(Id id) const;
  ContainerState* Find(Id id) {
    return const_cast<ContainerState*>(static_cast<const Arbiter*>(this)->Find(id));
  }
  static ProcessState& ProcessOf(uint32_t slot, ContainerState* container);
  double SampleWeight(int64_t dt);
  void ReadContainer(int64_t now, const ContainerReading& reading);
  void ReadProcess(int64_t now, const ProcessReading& reading, ContainerState* container);
  static void MeterProcess(int64_t now, int64_t metered, ProcessState* process,
                           ContainerState* container);
  static void EndProcess(int64_t now, ProcessState* process, ContainerState* container);
  void DecideWeights();
  double PartOf(const ProcessState& process) const;
  void CollectActiveProcesses();
  void DecideParts(int64_t now);
  void DecideStops(int64_t now);
  void DecidePools(int64_t now);
  double Elapsed(int64_t now) const;
  double Budget(int64_t now) const;
  int64_t PoolAfterDebtRepayment(const ContainerState& container, double elapsed,
                                 double weights) const;
  static void MeasureTurnUtilization(int64_t now, double elapsed, ContainerState* container);
  void UpdateOwedTime(int64_t now);
  void DecideTurn(int64_t now);
  void HoldHighClasses(int64_t now);
  int64_t WindowOfHighClass(int64_t window) const;
  int64_t BacklogMemory() const;  // how long after a wait a container counts as having a backlog
  int64_t NextTick(int64_t now);
  int64_t MaxLead(const ContainerState& container, double weights) const;
  static void EndFavorableBias(int64_t now, ContainerState* container);
  static void CorrectBias(double metered, double surely_sampled_part, double used,
                          BiasEstimate* estimate);
  void WriteDivision(int64_t now);

  std::vector<ContainerState> containers_;  // sorted by id
  // In the order in which containers reach their limits if all get GPU time by weight.
  std::vector<ContainerState*> by_limit_;
  size_t active_processes_ = 0;
  std::vector<ProcessState*> short_active_;  // sorted by rate
  std::vector<double> rates_below_;  // by index in short_active_: sum of the rates at lower indexes
  double long_active_ = 0;           // sum of TurnFraction() over processes with long kernels
  bool has_long_work_ = false;       // of any process, also of one that is not active
  int64_t sample_weight_dt_ = 0;
  double sample_weight_ = 0;  // SampleWeight(sample_weight_dt_)
  int64_t last_tick_ = 0;
  int64_t tick_interval_ = 2 * kMillisecond;  // time between two ticks while containers contend
  Id turn_holder_ = kNoTurn;                  // the container that has a turn
  Division division_;
};

Arbiter::ProcessReading ReadLine(uint32_t slot, const ComputeSlot& line);
void WriteAllowance(const Arbiter::Allowance& allowance, ComputeLimit* line);
void WritePart(const Arbiter::ProcessPart& part, ComputePart* line);

}  // namespace tessera::limiter
