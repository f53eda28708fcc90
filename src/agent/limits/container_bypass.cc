// SPDX-License-Identifier: Apache-2.0
// Part of ContainerUsage: finds processes that use a GPU without a limiter, reports them, and kills
// them if `stop_bypass` says so.
#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/agent/limits/bypass.h"
#include "src/agent/limits/container_usage_state.h"
#include "src/base/file.h"
#include "src/base/log.h"

namespace tessera::agent {
namespace {

// Unaccounted memory above this and above the container's limit cannot be a program's code.
constexpr Bytes kMaxUnexplained{int64_t{1} << 30};
// Use above the sum of a container's limit and this fraction of the GPU is excess. A container
// whose excess adds up to kMaxExcessSeconds has no working limiter. The excess of a kernel of 26
// seconds stays below that.
constexpr double kTolerated = 0.25;
constexpr double kMaxExcessSeconds = 20;

// `counted`: the status of the pids that a usage file counts.
bool IsDamaged(const Status& counted) { return counted.code() == Code::kFailedPrecondition; }

std::string DamageText(const Status& counted) {
  return fmt::format(
      "the container has damaged the file in which its processes count the memory that they hold "
      "({}); restart the container, and do not change that file",
      counted.message());
}

// `killed`: processes that were killed in this round and also in an earlier round.
std::string DescribeFailedKill(const Status& problem, const std::set<int>& killed) {
  if (!problem.ok()) return ". --limits-stop-bypass: " + problem.message();
  if (killed.empty()) return ". --limits-stop-bypass: 0 killed";
  return ". --limits-stop-bypass: the process was killed and has not ended yet";
}

}  // namespace

// Sets the engine's ID of each container, by which its processes in the driver's report are
// recognized. The ID is needed even if no process that sees the container's limits was found.
void ContainerUsage::FindOwners(const Round& round) const {
  std::map<Uid, int> container_counts;
  for (const auto& [key, entry] : ledger_->entries()) ++container_counts[key.first];
  for (const auto& watched : round.all) {
    watched->owner_id = watched->container_id;
    if (watched->owner_id.empty() && options_.container_id_of)
      watched->owner_id = options_.container_id_of(watched->holder);
    watched->is_alone = container_counts[watched->holder.pod_uid] == 1;
  }
}

// Finds the reported processes that cannot see the limits of their container. A file operation
// below the root of a container may hang, so each container has a job of its own, and the result is
// used in the next round.
void ContainerUsage::CheckVisibility(const Round& round) {
  for (const auto& watched : round.all) {
    if (watched->checking_since) continue;
    std::set<int> pids;
    for (const auto& [pid, process] : round.reported) {
      if (IsOwn(*watched, process.owner)) pids.insert(pid);
    }
    if (pids.empty()) watched->hidden.clear();
    if (pids.empty()) continue;
    watched->checking_since = runner_->clock().Now();
    const auto hidden = std::make_shared<std::set<int>>();
    const auto work = [pids, hidden, find = options_.find,
                       limits =
                           LimitsPath(options_.limits_dir, GrantLedger::KeyOf(watched->holder))] {
      for (const int pid : pids) {
        if (VisibilityOf(limits, pid, find) == LimitsVisibility::kHidden) hidden->insert(pid);
      }
    };
    RunJob("usage-visibility", work, [watched, hidden] {
      watched->checking_since.reset();
      watched->hidden = *hidden;
    });
  }
}

bool ContainerUsage::IsOwn(const WatchedContainer& watched, const ProcessOwner& owner) {
  if (owner.pod_uid != watched.holder.pod_uid) return false;
  return watched.owner_id.empty() ? watched.is_alone : owner.container_id == watched.owner_id;
}

// A check that does not return is stuck in a file system that the container has mounted over the
// limits. If a search has found the container, a stuck check is ignored.
bool ContainerUsage::IsHidden(const WatchedContainer& watched, int pid) const {
  const bool is_stuck =
      watched.checking_since && runner_->clock().Now() > *watched.checking_since + kReadDeadline;
  return watched.hidden.contains(pid) || (is_stuck && watched.container_id.empty());
}

// A process that has called execve has not ended, so only its pid is looked up in /proc.
bool ContainerUsage::HasEnded(int pid) const {
  return !PathExists(fmt::format("{}/{}", options_.find.proc_root, pid));
}

// A process starts its limiter before it appears in the driver's report, and may end between the
// two readings of a round. So a process counts as bypassing if two rounds report it. It also counts
// if it was alive after the second reading and has ended before the next round. The largest process
// counts, too, if the container has more uncounted memory than its limit, or uses much more of the
// GPU's time: only a process that changes the numbers in the usage file gets so much.
void ContainerUsage::CheckBypass(const WatchedContainer& watched, const ProcessUses& processes,
                                 const Round& round, ContainerGpuState* gpu, ContainerGpuUse* use) {
  const std::set<int> in_last_round = std::exchange(gpu->without_limiter, {});
  const std::map<int, std::string> new_in_last_round = std::exchange(gpu->new_without_limiter, {});
  std::erase_if(gpu->killed, [&](int pid) {
    return std::ranges::count(processes, pid, &gpu::ProcessUse::pid) == 0;
  });
  // If the container's usage file is missing or damaged, it counts no process. After any other
  // error the counted processes are unknown.
  const Status& status = watched.pids.status();
  const bool counts_none = status.code() == Code::kNotFound || IsDamaged(status);
  const std::vector<int> counted = status.ok() ? *watched.pids : std::vector<int>();
  std::vector<ReportedProcess> bypassing;
  for (const gpu::ProcessUse& process : processes) {
    ReportedProcess reported = round.reported.at(process.pid);
    reported.is_hidden = IsHidden(watched, process.pid);
    const bool is_uncounted = (status.ok() || counts_none) && reported.pid_in_container &&
                              std::ranges::count(counted, *reported.pid_in_container) == 0;
    if (!reported.is_hidden && !is_uncounted) continue;
    gpu->without_limiter.insert(process.pid);
    if (in_last_round.contains(process.pid)) {
      bypassing.push_back(reported);
    } else if (reported.is_alive) {
      gpu->new_without_limiter[process.pid] = reported.name;
    }
  }
  const MonotonicTime now = runner_->clock().Now();
  const Bytes unaccounted = gpu->unaccounted.Get(now);
  if (bypassing.empty() && watched.readable &&
      unaccounted > std::max(kMaxUnexplained, use->limit)) {
    const auto largest = std::ranges::max_element(processes, {}, &gpu::ProcessUse::memory);
    bypassing.push_back(round.reported.at(largest->pid));
    bypassing.back().uncounted = unaccounted;
  }
  const limiter::LimitsFile& limits = *watched.region->limits();
  const int index = limits.Find(use->uuid.c_str());
  const double limit = index < 0 ? 0 : double(limits.limits().compute[index].cap) / limiter::kOne;
  const bool exceeds = AddExcess(now, use->utilization.value_or(0), limit, gpu);
  if (exceeds && bypassing.empty() && !processes.empty()) {
    const auto busiest = std::ranges::max_element(processes, {}, &gpu::ProcessUse::percent);
    bypassing.push_back(round.reported.at(busiest->pid));
    bypassing.back().exceeds_compute = true;
  }
  use->bypassing = static_cast<int>(bypassing.size());
  const bool may_record_event = now >= gpu->next_bypass_event;
  const bool kills = options_.stop_bypass.Contains(watched.holder.pod_namespace);
  for (const auto& [pid, name] : new_in_last_round) {
    if (!bypassing.empty() || !may_record_event || !HasEnded(pid)) continue;
    gpu->next_bypass_event = now + kEventPause;
    return RecordEvent(
        watched.holder, names::kReasonLimiterBypassed,
        fmt::format("process {} ({}) of container {} used {} without the limiter, so its share was "
                    "not enforced, and ended within two seconds: {}",
                    pid, name, watched.holder.container, use->uuid,
                    IsDamaged(status) ? DamageText(status)
                                      : "check whether the image contains its own driver library, "
                                        "and whether the container starts short-lived programs"));
  }
  if (bypassing.empty() || (!may_record_event && !kills)) return;
  if (may_record_event) gpu->next_bypass_event = now + kEventPause;
  if (kills) gpu->excess_seconds = 0;
  // The Event names the first process.
  std::ranges::stable_partition(bypassing, [&](const ReportedProcess& process) {
    return !gpu->killed.contains(process.pid);
  });
  HandleBypass(watched, bypassing, may_record_event, use->uuid);
}

// Adds the GPU time that the container used beyond its limit since the last call. `used`, `limit`:
// parts of the GPU; limit 0: none. True: the sum has reached kMaxExcessSeconds.
bool ContainerUsage::AddExcess(MonotonicTime now, double used, double limit,
                               ContainerGpuState* gpu) {
  const MonotonicTime before = std::exchange(gpu->excess_at, now);
  if (before == MonotonicTime{} || limit <= 0) {
    gpu->excess_seconds = 0;
    return false;
  }
  const double seconds = std::chrono::duration<double>(now - before).count();
  const double excess = used - limit - kTolerated;
  gpu->excess_seconds = std::clamp(gpu->excess_seconds + excess * seconds, 0.0, kMaxExcessSeconds);
  return excess > 0 && gpu->excess_seconds >= kMaxExcessSeconds;
}

// Returns the reason why the process has no limiter if the container's files show it, else "".
// DescribeBypass then looks at the process's memory map.
std::string ContainerUsage::CauseOf(const ReportedProcess& process,
                                    const WatchedContainer& watched) {
  const Status& counted = watched.pids.status();
  if (process.is_hidden) {
    return fmt::format(
        "the limits of the container are not visible to process {}: /dev/tessera/limits is "
        "unmounted or covered; leave the mounts below /dev/tessera unchanged, or remove the "
        "capability CAP_SYS_ADMIN from the container",
        process.pid);
  }
  if (process.uncounted > Bytes(0)) {
    return fmt::format(
        "the driver reports {} MiB for the container that its limiters do not count: a process has "
        "changed the numbers in /dev/tessera/usage, or the program loads that much code; restart "
        "the container, and do not change that file",
        process.uncounted.count() >> 20);
  }
  if (process.exceeds_compute) {
    return "for half a minute the driver reports that the container uses far more of the GPU's "
           "time than its limit: a process has changed the numbers in /dev/tessera/usage, or a "
           "kernel starts others that the limiter does not see; restart the container, and do not "
           "change that file";
  }
  const bool fails_open = (watched.region->limits()->limits().flags & limiter::kFailOpen) != 0;
  if (fails_open && counted.code() == Code::kNotFound) {
    return "the limiter could not count the process, and --limits-fail-open has its namespace; the "
           "program's standard error has the reason";
  }
  return IsDamaged(counted) ? DamageText(counted) : "";
}

void ContainerUsage::HandleBypass(const WatchedContainer& watched,
                                  const std::vector<ReportedProcess>& processes,
                                  bool may_record_event, const std::string& uuid) {
  const ContainerRef& holder = watched.holder;
  const bool kills = options_.stop_bypass.Contains(holder.pod_namespace);
  const std::string cause = CauseOf(processes[0], watched);
  struct BypassReport {
    std::string text;
    std::set<int> killed;  // pids
    Status problem;
  };
  const auto report = std::make_shared<BypassReport>();
  const auto work = [processes, cause, kills, report, root = options_.find.proc_root] {
    const Result<std::string> maps = ReadFile(fmt::format("{}/{}/maps", root, processes[0].pid));
    report->text = !cause.empty() ? cause : DescribeBypass(maps.value_or(""));
    if (!kills) return;
    for (const ReportedProcess& process : processes) {
      const Status status = KillProcessOf(process.owner, root, process.pid);
      if (status.ok()) report->killed.insert(process.pid);
      if (!status.ok() && status.code() != Code::kNotFound) report->problem = status;
    }
  };
  RunJob("usage-bypass", work,
         [this, holder, may_record_event, kills, uuid, report, first = processes[0]] {
           const std::string text = fmt::format(
               "process {} ({}) of container {} uses {} without the limiter, so its share is not "
               "enforced: {}",
               first.pid, first.name, holder.container, uuid, report->text);
           const bool kills_new = FinishKills(holder, uuid, report->killed, text);
           if (!may_record_event || (kills_new && report->problem.ok())) return;
           RecordEvent(holder, names::kReasonLimiterBypassed,
                       text + (kills ? DescribeFailedKill(report->problem, report->killed) : ""));
         });
}

// Records the killed processes. Returns whether `pids` has a process that was not killed before: a
// killed process may be in the driver's report for some rounds, and is killed in each.
bool ContainerUsage::FinishKills(const ContainerRef& holder, const std::string& uuid,
                                 const std::set<int>& pids, const std::string& text) {
  ContainerGpuState of_removed;
  const auto watched = watched_.find(GrantLedger::KeyOf(holder));
  ContainerGpuState& gpu = watched == watched_.end() ? of_removed : watched->second->gpus[uuid];
  const size_t killed_before = gpu.killed.size();
  gpu.killed.insert(pids.begin(), pids.end());
  const size_t kills = gpu.killed.size() - killed_before;
  if (kills == 0) return false;
  gpu.unreported_kills += kills;
  gpu.last_kill = text;
  // The log has a line for each kill.
  if (!ReportKills(holder, &gpu)) {
    Log(Severity::kWarning, fmt::format("{}. --limits-stop-bypass: {} killed", text, kills),
        {{"pod", holder.PodText()}});
  }
  return true;
}

// Records an Event about the kills since the last such Event, unless that Event is too recent.
bool ContainerUsage::ReportKills(const ContainerRef& holder, ContainerGpuState* gpu) const {
  const MonotonicTime now = runner_->clock().Now();
  const bool is_first = gpu->next_kill_event == MonotonicTime{};
  if (gpu->unreported_kills == 0 || (!is_first && now < gpu->next_kill_event)) return false;
  const bool is_loop = !is_first && now < gpu->next_kill_event + kEventPause;
  gpu->kill_event_pause =
      is_loop ? std::min(2 * gpu->kill_event_pause, kEventPause) : kKillEventPause;
  gpu->next_kill_event = now + gpu->kill_event_pause;
  RecordKills(holder, gpu);
  return true;
}

void ContainerUsage::RecordKills(const ContainerRef& holder, ContainerGpuState* gpu) const {
  const size_t kills = std::exchange(gpu->unreported_kills, 0);
  if (kills == 0) return;
  RecordEvent(holder, names::kReasonLimiterBypassed,
              fmt::format("{}. --limits-stop-bypass: {} killed", gpu->last_kill, kills));
}

}  // namespace tessera::agent
