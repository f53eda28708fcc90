// SPDX-License-Identifier: Apache-2.0
// What limited containers use of their GPUs. Once a second it reads what the limiters of a
// container count (container_region.h) and what NVML reports for the container's processes, and
// writes the difference into the container's `limits` (unaccounted.h), where the limiters add it to
// what they hold. It publishes the numbers, and an Event where an allocation was refused, where a
// container has more than a limit that was lowered, and where a process uses a GPU without a
// limiter (bypass.h). In namespaces that `stop_bypass` names it kills such a process. A process has
// no limiter if it is not counted in the container's `usage`, or if it cannot read the container's
// `limits`. The second is found out also for a container that no search finds, because it has
// unmounted or covered its files: its processes are then known by their cgroup.
//
// A container that lives for less than a second or two may end unseen. Containers that have ended
// are not published.
//
// Not for writing limits (container_limits.h). Threads: lives on `runner`; files and the driver are
// read on threads of their own, each with a deadline. While the driver does not answer, what the
// limiters count is still published, and nothing is unaccounted. Cost: one walk of /proc for every
// search of a container that has just been granted its GPUs; then some 10 µs a container and
// second, and NVML's list of processes. Without limited containers: one look at the ledger a
// second.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agent/grants/container_limits.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/limits/compute_control.h"
#include "src/agent/limits/container_region.h"
#include "src/agent/limits/unaccounted.h"
#include "src/agent/pods/pods.h"
#include "src/agent/pods/process_owner.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/device/limit_variables.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/process_reader.h"

namespace tessera::agent {

// How well a share of compute has held in the last minute (share_history.h). Parts of the GPU.
struct ShareRecord {
  double mean = 0;   // of what the container used
  double worst = 0;  // the largest error of a second: above 0 beyond the limit, below 0 too little
  bool operator==(const ShareRecord&) const = default;
};

// One container with a share of one GPU.
struct ContainerGpuUse {
  ContainerRef who;
  std::string uuid;
  MilliGpu compute;  // granted
  Bytes granted;
  bool limited = true;  // false: isolation is off for it, and the numbers below are not known
  Bytes limit;          // at most `granted`
  Bytes held;           // as its limiters count
  Bytes unaccounted;    // beyond that, and counted against the limit
  Bytes peak;           // the most that was counted at once
  std::optional<Bytes> reported;      // by NVML, contexts included; nothing while that is not known
  std::optional<double> utilization;  // the part of the GPU in the last second, by NVML
  MilliGpu compute_limit;             // what its limiters let it use at most; 0: not limited
  limiter::PriorityClass compute_class = limiter::PriorityClass::kNormal;
  std::optional<ComputeUse> compute_use;  // by its limiters, in the last second
  std::optional<ShareRecord> share_record;
  uint64_t refused = 0;  // allocations, since the container started
  int processes = 0;     // that hold memory or, by the driver, use the GPU
  int bypassing = 0;     // processes that use the GPU without a limiter
  bool is_read = true;   // false: the agent has just started and has not found the container yet

  Bytes used() const { return held + unaccounted; }
};

// By namespace, pod, container, UUID.
using ContainerUses = std::vector<ContainerGpuUse>;

struct ContainerUsageOptions {
  std::string limits_dir;  // "": no container is limited
  FindOptions find;
  NamespaceSet stop_bypass;  // whose processes are killed if they use a GPU without a limiter
  std::function<bool(const ContainerRef&)> has_ended;  // null: no container has
  // The engine's ID of a running container, without "containerd://"; "" while it is not known.
  // Null: never known.
  std::function<std::string(const ContainerRef&)> container_id_of;
};

class ContainerUsage {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);
  // Between searches for a container that is not found: doubled from kInterval up to this.
  static constexpr Duration kLongestPause = std::chrono::seconds(8);
  static constexpr Duration kDeadline = std::chrono::seconds(5);
  // Between two Events of one kind about one container on one GPU.
  static constexpr Duration kEventPause = std::chrono::minutes(5);

  struct Callbacks {
    std::function<void(std::shared_ptr<const ContainerUses>)> on_uses;
    std::function<void(const ContainerRef&, const PodEvent&)> on_event;
  };

  // All outlive it. Begins after Start.
  ContainerUsage(TaskRunner* runner, ContainerUsageOptions options, const GrantLedger* ledger,
                 gpu::ProcessReader* gpus, gpu::BlockingCaller* caller, Callbacks callbacks);
  ~ContainerUsage();
  ContainerUsage(const ContainerUsage&) = delete;
  ContainerUsage& operator=(const ContainerUsage&) = delete;

  void Start();

  // For an arbiter of compute: both files of each container that is watched. `limits` may be
  // written and `usage` read with pread (usage_file.h) on any thread, as long as they are held;
  // take them anew after each on_uses, because a container that starts again has another `usage`.
  struct Files {
    ContainerRef who;
    std::vector<device::DeviceShare> shares;
    device::Variables env;  // as the grant has it
    std::shared_ptr<limiter::LimitsFile> limits;
    std::shared_ptr<const Fd> usage;  // null until a process has used a GPU
  };
  std::vector<Files> files() const;

 private:
  struct ReportedProcess;
  struct OnGpu {
    UnaccountedMemory unaccounted;
    uint64_t refused = 0;  // as it was read last
    uint64_t since_event = 0;
    MonotonicTime next_event{};
    std::set<int> without_limiter;         // pids, in the last round
    std::map<int, std::string> seen_once;  // of these, names of those that were new and ran
    MonotonicTime next_bypass_event{};
    MonotonicTime next_excess_event{};
    Bytes limit;
  };
  struct Watched;
  struct Round;
  using ProcessUses = std::vector<gpu::ProcessUse>;

  void Tick();
  void Watch();
  void Publish(ContainerUses uses);
  static void Resume(const GrantLedger::Entry& entry, Watched* watched);
  void ReadBefore();
  void Search(const Round& round);
  void ReadAfter(const std::shared_ptr<Round>& round);
  void FindOwners(const Round& round) const;
  void CheckSight(const Round& round);
  void Finish(const Round& round);
  static bool IsOwn(const Watched& watched, const ProcessOwner& owner);
  // The processes of the container that NVML reports on the GPU; nothing where that is not known.
  // If the container is not found, because it may be starting, only the processes that cannot see
  // its limits.
  std::optional<ProcessUses> ProcessesOf(const Watched& watched, const std::string& uuid,
                                         const Round& round) const;
  ContainerGpuUse Account(Watched* watched, const device::DeviceShare& share, const Round& round);
  bool HasEnded(int pid) const;
  bool IsHidden(const Watched& watched, int pid) const;
  void CheckBypass(const Watched& watched, const ProcessUses& processes, const Round& round,
                   OnGpu* gpu, ContainerGpuUse* use);
  static std::string CauseOf(const ReportedProcess& process, const Status& counted);
  void HandleBypass(const Watched& watched, const std::vector<ReportedProcess>& processes,
                    bool with_event, const std::string& uuid);
  void CheckRefusals(const ContainerGpuUse& use, const UsageReading& reading, OnGpu* gpu);
  void CheckLimit(const ContainerGpuUse& use, OnGpu* gpu);
  void RecordEvent(const ContainerRef& who, std::string_view reason, std::string message) const;
  void RunJob(const char* name, std::function<void()> work, std::function<void()> finished);

  TaskRunner* const runner_;
  const ContainerUsageOptions options_;
  const GrantLedger* const ledger_;
  gpu::ProcessReader* const gpus_;
  gpu::BlockingCaller* const caller_;
  const Callbacks callbacks_;
  std::map<GrantLedger::Key, std::shared_ptr<Watched>> watched_;
  ContainerUses unlimited_;
  MonotonicTime started_{};
  bool first_ = true;  // nothing was watched before
  bool busy_ = false;  // a round is under way; jobs have the regions
  bool published_ = false;
  WeakPtrFactory<ContainerUsage> weak_{this};
};

}  // namespace tessera::agent
