// SPDX-License-Identifier: Apache-2.0
// Measures how much of their GPUs limited containers use. Once a second it reads the count of each
// container's limiters (container_region.h) and NVML's report on the container's processes. It
// writes the difference between the two into the container's `limits` (unaccounted.h), and the
// limiters add the difference to their own count. It publishes the numbers. It records Events about
// refused allocations, about containers with more memory than a lowered limit, and about processes
// that use a GPU without a limiter (bypass.h). In the namespaces of `stop_bypass` it kills such a
// process. A process has no limiter if it is not counted in the container's `usage`, or if it
// cannot read the container's `limits`. A search does not find a container that has unmounted or
// covered its files. The processes of such a container are recognized by their cgroup.
//
// A container that runs for less than two seconds may be missed. Containers that have ended are not
// published.
//
// container_limits.h writes the limits. Threads: lives on `runner`; files and the driver are read
// on threads of their own, each with a deadline. While the driver does not answer, the count of the
// limiters is still published, and unaccounted memory is 0. Cost: one walk of /proc for every
// search of a container that has just been granted its GPUs; afterwards, each second, about 10 µs
// for each container and one query of NVML's processes. Without limited containers the cost is one
// pass over the ledger each second.
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
#include "src/base/strings.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/device/limit_variables.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/process_reader.h"

namespace tessera::agent {

// How closely a container followed its share of compute in the last minute (share_history.h), in
// fractions of the GPU.
struct ShareRecord {
  double mean = 0;   // average use, measured by the limiters
  double worst = 0;  // largest error in a second; > 0: above the limit, < 0: below the share
  std::optional<double> mean_by_driver;  // average of the driver's samples
  bool operator==(const ShareRecord&) const = default;
};

// One container with a share of one GPU.
struct ContainerGpuUse {
  ContainerRef holder;
  std::string uuid;
  MilliGpu compute;     // granted compute
  Bytes granted;        // granted device memory
  bool limited = true;  // false: isolation is off for the container, the numbers below are unknown
  Bytes limit;          // of device memory, at most `granted`
  Bytes held;           // counted by its limiters
  Bytes unaccounted;    // not counted by its limiters, and added to `held` for the limit
  Bytes peak;           // maximum of held + unaccounted
  std::optional<Bytes>
      reported;  // by NVML, contexts included; nothing while NVML's report is unknown
  std::optional<double> utilization;  // fraction of the last second, by NVML
  MilliGpu compute_limit;             // the most that its limiters allow; 0: not limited
  limiter::PriorityClass compute_class = limiter::PriorityClass::kNormal;
  std::optional<ComputeUse> compute_use;  // in the last second, measured by its limiters
  std::optional<ShareRecord> share_record;
  uint64_t refused = 0;  // number of refused allocations since the container started
  int processes = 0;     // processes that hold memory, or that the driver reports on the GPU
  int bypassing = 0;     // processes that use the GPU without a limiter
  bool is_read = true;   // false: the agent has just started and has not found the container yet

  Bytes used() const { return held + unaccounted; }
};

// Sorted by namespace, pod, container, UUID.
using ContainerUses = std::vector<ContainerGpuUse>;

struct ContainerUsageOptions {
  std::string limits_dir;  // "": no container is limited
  FindOptions find;
  NamespaceSet stop_bypass;  // namespaces whose processes are killed if they have no limiter
  std::function<bool(const ContainerRef&)> has_ended;  // null: no container has ended
  // The engine's ID of a running container, without "containerd://"; "" while it is unknown. May be
  // null.
  std::function<std::string(const ContainerRef&)> container_id_of;
};

class ContainerUsage {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);
  // The longest pause between two searches for a container. The pause begins with kInterval and
  // doubles.
  static constexpr Duration kLongestPause = std::chrono::seconds(8);
  static constexpr Duration kReadDeadline = std::chrono::seconds(5);
  // Minimum time between two Events of one kind about one container and GPU.
  static constexpr Duration kEventPause = std::chrono::minutes(5);
  // Every kill is in an Event. The minimum time between two such Events about one container and GPU
  // begins with this value and doubles up to kEventPause, so that a loop of kills cannot flood the
  // API server. An Event has the number of kills since the last one.
  static constexpr Duration kKillEventPause = std::chrono::seconds(30);

  struct Callbacks {
    std::function<void(std::shared_ptr<const ContainerUses>)> on_uses;
    std::function<void(const ContainerRef&, const PodEvent&)> on_event;
  };

  // The arguments must outlive the object.
  ContainerUsage(TaskRunner* runner, ContainerUsageOptions options, const GrantLedger* ledger,
                 gpu::ProcessReader* driver_processes, gpu::BlockingCaller* caller,
                 Callbacks callbacks);
  ~ContainerUsage();
  ContainerUsage(const ContainerUsage&) = delete;
  ContainerUsage& operator=(const ContainerUsage&) = delete;

  void Start();

  // For ComputeControl: both files of each watched container. As long as the pointers are held,
  // `limits` may be written and `usage` read with pread (usage_file.h) on any thread. Call files()
  // again after each on_uses, because a container that restarts has a new `usage`.
  struct RegionFiles {
    ContainerRef holder;
    std::vector<device::DeviceShare> shares;
    StringMap env;  // of the grant
    std::shared_ptr<limiter::LimitsFile> limits;
    std::shared_ptr<const Fd> usage;  // null until a process has used a GPU
  };
  std::vector<RegionFiles> files() const;

 private:
  struct ReportedProcess;
  struct ContainerGpuState {
    UnaccountedMemory unaccounted;
    // Refusals at the latest reading. Before the first reading: refusals that an earlier agent
    // reported.
    std::optional<uint64_t> refused;
    uint64_t unreported_refusals = 0;  // since the last Event
    Bytes refusal_limit;               // the limit when the last refusal was read
    MonotonicTime next_refusal_event{};
    std::set<int> without_limiter;  // pids of the last round
    // The pids of `without_limiter` that are new and running, with the names of the programs.
    std::map<int, std::string> new_without_limiter;
    MonotonicTime next_bypass_event{};
    std::set<int> killed;         // pids that were killed and are in the driver's report
    size_t unreported_kills = 0;  // since the last Event about a kill
    std::string last_kill;        // text about the last killed process
    Duration kill_event_pause{};
    MonotonicTime next_kill_event{};
    MonotonicTime next_excess_event{};
    Bytes limit;                // of device memory, at the last check
    double excess_seconds = 0;  // GPU time beyond the limit of compute
    MonotonicTime excess_at{};  // last update of excess_seconds
  };
  struct WatchedContainer;
  struct Round;
  using ProcessUses = std::vector<gpu::ProcessUse>;

  void Tick();
  void UpdateWatched();
  void Publish(ContainerUses uses);
  static void Resume(const GrantLedger::Entry& entry, WatchedContainer* watched);
  void ReadUsageBeforeDriver();
  void Search(const Round& round);
  void ReadUsageAfterDriver(const std::shared_ptr<Round>& round);
  void FindOwners(const Round& round) const;
  void CheckVisibility(const Round& round);
  void FinishRound(const Round& round);
  static bool IsOwn(const WatchedContainer& watched, const ProcessOwner& owner);
  // The processes of the container that NVML reports on the GPU; nothing if there is no report. A
  // container that is not found may be starting, so only its processes that cannot see its limits
  // are returned.
  std::optional<ProcessUses> ProcessesOf(const WatchedContainer& watched, const std::string& uuid,
                                         const Round& round) const;
  ContainerGpuUse MeasureUse(WatchedContainer* watched, const device::DeviceShare& share,
                             const Round& round);
  bool HasEnded(int pid) const;
  bool IsHidden(const WatchedContainer& watched, int pid) const;
  void CheckBypass(const WatchedContainer& watched, const ProcessUses& processes,
                   const Round& round, ContainerGpuState* gpu, ContainerGpuUse* use);
  static bool AddExcess(MonotonicTime now, double used, double limit, ContainerGpuState* gpu);
  static std::string CauseOf(const ReportedProcess& process, const WatchedContainer& watched);
  void HandleBypass(const WatchedContainer& watched, const std::vector<ReportedProcess>& processes,
                    bool may_record_event, const std::string& uuid);
  bool FinishKills(const ContainerRef& holder, const std::string& uuid, const std::set<int>& pids,
                   const std::string& text);
  bool ReportKills(const ContainerRef& holder, ContainerGpuState* gpu) const;
  void RecordKills(const ContainerRef& holder, ContainerGpuState* gpu) const;
  void CheckRefusals(const ContainerGpuUse& use, const UsageReading& reading,
                     ContainerGpuState* gpu);
  void CheckLimit(const ContainerGpuUse& use, ContainerGpuState* gpu);
  void RecordEvent(const ContainerRef& holder, std::string_view reason, std::string message) const;
  void RunJob(const char* name, std::function<void()> work, std::function<void()> finished);

  TaskRunner* const runner_;
  const ContainerUsageOptions options_;
  const GrantLedger* const ledger_;
  gpu::ProcessReader* const driver_processes_;
  gpu::BlockingCaller* const caller_;
  const Callbacks callbacks_;
  std::map<GrantLedger::Key, std::shared_ptr<WatchedContainer>> watched_;
  ContainerUses unlimited_;
  MonotonicTime started_at_{};
  bool is_first_watch_ = true;  // no container was watched before
  bool busy_ = false;           // a round is running, and its jobs use the regions
  bool has_published_uses_ = false;
  WeakPtrFactory<ContainerUsage> weak_{this};
};

}  // namespace tessera::agent
