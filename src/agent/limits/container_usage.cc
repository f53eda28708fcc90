// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/container_usage.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "api/names.h"
#include "src/agent/limits/container_usage_state.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

double MiB(Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 20); }

bool IsLimited(const GrantLedger::Entry& entry) {
  return std::ranges::any_of(entry.shares,
                             [](const auto& share) { return share.compute != kWholeGpu; });
}

// The program's name, for messages.
std::string NameOf(const std::string& proc_root, int pid) {
  const Result<std::string> name = ReadFile(fmt::format("{}/{}/comm", proc_root, pid));
  return name.ok() ? std::string(Trim(*name)) : "?";
}

// The kernel shows no root for a process that has ended, zombies included.
bool IsRunning(const std::string& proc_root, int pid) {
  return PathExists(fmt::format("{}/{}/root/.", proc_root, pid));
}

bool ComesBefore(const ContainerGpuUse& a, const ContainerGpuUse& b) {
  return std::tie(a.holder.pod_namespace, a.holder.pod_name, a.holder.container, a.uuid) <
         std::tie(b.holder.pod_namespace, b.holder.pod_name, b.holder.container, b.uuid);
}

}  // namespace

ContainerUsage::ContainerUsage(TaskRunner* runner, ContainerUsageOptions options,
                               const GrantLedger* ledger, gpu::ProcessReader* driver_processes,
                               gpu::BlockingCaller* caller, Callbacks callbacks)
    : runner_(runner),
      options_(std::move(options)),
      ledger_(ledger),
      driver_processes_(driver_processes),
      caller_(caller),
      callbacks_(std::move(callbacks)) {}
ContainerUsage::~ContainerUsage() = default;

void ContainerUsage::Start() {
  started_at_ = runner_->clock().Now();
  UpdateWatched();
  ContainerUses unread;
  for (const auto& [key, watched] : watched_) {
    for (const device::DeviceShare& share : watched->shares) {
      if (share.compute != kWholeGpu)
        unread.push_back({.holder = watched->holder, .uuid = share.uuid, .is_read = false});
    }
  }
  if (!unread.empty()) Publish(std::move(unread));
  Tick();
}

void ContainerUsage::Tick() {
  runner_->PostDelayed(kInterval, [this, weak = weak_.Get()] {
    if (weak) Tick();
  });
  // A job that is overdue may still use the regions.
  if (busy_) return;
  UpdateWatched();
  if (!watched_.empty()) {
    busy_ = true;
    return ReadUsageBeforeDriver();
  }
  if (has_published_uses_ || !unlimited_.empty()) Publish({});
}

// Adds the containers that are not limited, and removes those that have ended.
void ContainerUsage::Publish(ContainerUses uses) {
  uses.insert(uses.end(), unlimited_.begin(), unlimited_.end());
  if (options_.has_ended) {
    std::erase_if(uses, [this](const ContainerGpuUse& use) {
      const auto watched = watched_.find(GrantLedger::KeyOf(use.holder));
      const bool runs = watched != watched_.end() && watched->second->region->found();
      return !runs && options_.has_ended(use.holder);
    });
  }
  std::ranges::sort(uses, ComesBefore);
  has_published_uses_ = !uses.empty();
  callbacks_.on_uses(std::make_shared<const ContainerUses>(std::move(uses)));
}

// A container is watched as long as the ledger has its grant.
void ContainerUsage::UpdateWatched() {
  const auto& entries = ledger_->entries();
  std::erase_if(watched_, [&](const auto& item) {
    if (entries.contains(item.first)) return false;
    for (auto& [uuid, gpu] : item.second->gpus) RecordKills(item.second->holder, &gpu);
    return true;
  });
  unlimited_.clear();
  for (const auto& [key, entry] : entries) {
    if (!entry.holder.owner_known() || !IsLimited(entry)) continue;
    std::shared_ptr<WatchedContainer>& watched = watched_[key];
    if (watched == nullptr) {
      auto region = options_.limits_dir.empty()
                        ? Status(Code::kNotFound, "no container is limited")
                        : ContainerRegion::Open(LimitsPath(options_.limits_dir, key));
      // Isolation is off, or the limits file has another version.
      if (!region.ok()) {
        watched_.erase(key);
        for (const device::DeviceShare& share : entry.shares) {
          if (share.compute == kWholeGpu) continue;
          unlimited_.push_back({.holder = entry.holder,
                                .uuid = share.uuid,
                                .compute = share.compute,
                                .granted = share.memory,
                                .limited = false});
        }
        continue;
      }
      watched = std::make_shared<WatchedContainer>();
      watched->region = *std::move(region);
      watched->existed_before_agent = is_first_watch_;
      Resume(entry, watched.get());
    }
    watched->holder = entry.holder;
    watched->shares = entry.shares;
    watched->env = entry.env;
    if (!watched->newly_found) continue;
    watched->region->SetFound(*std::move(watched->newly_found));
    watched->newly_found.reset();
    watched->pause = kInterval;
  }
  is_first_watch_ = false;
}

void ContainerUsage::Resume(const GrantLedger::Entry& entry, WatchedContainer* watched) {
  const limiter::LimitsFile& limits = *watched->region->limits();
  for (const device::DeviceShare& share : entry.shares) {
    const int index = limits.Find(share.uuid.c_str());
    if (index < 0) continue;
    const limiter::GpuLimit& of_gpu = limits.limits().gpus[index];
    ContainerGpuState& gpu = watched->gpus[share.uuid];
    gpu.unaccounted.Resume(Bytes(static_cast<int64_t>(of_gpu.unaccounted.load())));
    if (const uint64_t reported = of_gpu.reported_refusals.load(); reported > 0)
      gpu.refused = reported - 1;
  }
}

void ContainerUsage::RunJob(const char* name, std::function<void()> work,
                            std::function<void()> finished) {
  gpu::BlockingCaller::Job job;
  job.name = name;
  job.deadline = kReadDeadline;
  job.work = std::move(work);
  job.on_finished = [finished = std::move(finished), weak = weak_.Get()] {
    if (weak) finished();
  };
  job.on_overdue = [name] {
    Log(Severity::kWarning, "cannot read in time how much of their GPUs containers use",
        {{"job", name}});
  };
  caller_->Start(std::move(job));
}

void ContainerUsage::ReadUsageBeforeDriver() {
  const auto round = std::make_shared<Round>();
  const MonotonicTime now = runner_->clock().Now();
  for (auto& [key, watched] : watched_) {
    round->all.push_back(watched);
    if (watched->region->found() || watched->searching || now < watched->next_search) continue;
    round->missing.insert(watched.get());
    watched->next_search = now + watched->pause;
    watched->pause = std::min(2 * watched->pause, kLongestPause);
  }
  const auto work = [round, root = options_.find.proc_root] {
    for (const auto& watched : round->all) {
      watched->container_id = watched->region->container_id();
      auto readings = watched->region->Read();
      watched->readable = readings.ok();
      watched->before = readings.ok() ? *std::move(readings) : std::vector<UsageReading>();
    }
    if (!round->missing.empty()) round->processes = ListPodProcesses(root).value_or({});
  };
  RunJob("usage-before", work, [this, round] {
    Search(*round);
    // A list that was read earlier, for another caller, may lack a process that has started since.
    const auto on_read = [this, round, weak = weak_.Get()](const auto& report) {
      if (!weak) return;
      round->report = report;
      ReadUsageAfterDriver(round);
    };
    driver_processes_->Read(on_read, /*max_age=*/Duration(0));
  });
}

// Each container has a job of its own, so that a job that hangs does not delay the others.
void ContainerUsage::Search(const Round& round) {
  for (const auto& watched : round.all) {
    const auto processes = round.processes.find(watched->holder.pod_uid);
    if (!round.missing.contains(watched.get())) continue;
    watched->searched |= processes == round.processes.end();
    if (processes == round.processes.end()) continue;
    watched->searching = true;
    const auto found = std::make_shared<std::optional<FoundContainer>>();
    const auto work = [found, candidates = processes->second, find = options_.find,
                       limits =
                           LimitsPath(options_.limits_dir, GrantLedger::KeyOf(watched->holder))] {
      auto answer = FindContainer(limits, candidates, find);
      if (answer.ok()) *found = *std::move(answer);
    };
    RunJob("usage-search", work, [watched, found] {
      watched->searching = false;
      watched->searched = true;
      if (*found) watched->newly_found = std::move(**found);
    });
  }
}

void ContainerUsage::ReadUsageAfterDriver(const std::shared_ptr<Round>& round) {
  const auto work = [round, root = options_.find.proc_root] {
    for (const auto& watched : round->all) {
      auto readings = watched->region->Read();
      // If the last process has ended since the first reading, that reading is final.
      watched->after = readings.ok() ? *std::move(readings) : watched->before;
      watched->readable |= readings.ok();
      watched->pids = watched->region->ReadPids();
    }
    for (const gpu::ProcessReport::GpuProcesses& gpu : round->report->gpus) {
      for (const gpu::ProcessUse& process : gpu.processes) {
        auto owner = OwnerOf(root, process.pid);
        if (!owner) continue;
        round->reported[process.pid] = {process.pid, *std::move(owner), OwnPidOf(root, process.pid),
                                        NameOf(root, process.pid), IsRunning(root, process.pid)};
      }
    }
  };
  RunJob("usage-after", work, [this, round] {
    FindOwners(*round);
    FinishRound(*round);
    CheckVisibility(*round);
  });
}

void ContainerUsage::FinishRound(const Round& round) {
  busy_ = false;
  ContainerUses uses;
  for (const auto& watched : round.all) {
    // A container that was released meanwhile may have no file any more.
    const auto current = watched_.find(GrantLedger::KeyOf(watched->holder));
    if (current == watched_.end() || current->second != watched) continue;
    watched->usage = watched->region->usage();
    const bool is_known = watched->searched && !watched->newly_found;
    for (const device::DeviceShare& share : watched->shares) {
      if (share.compute == kWholeGpu) continue;
      ContainerGpuUse use = MeasureUse(watched.get(), share, round);
      ReportKills(watched->holder, &watched->gpus[share.uuid]);
      // A container that is not found within kReadDeadline after the start does not run.
      use.is_read = is_known;
      if (is_known || runner_->clock().Now() < started_at_ + kReadDeadline)
        uses.push_back(std::move(use));
    }
    if (watched->readable) watched->existed_before_agent = false;
    // The container has ended and may restart at once, so the next search is not delayed.
    if (!watched->container_id.empty() && !watched->region->found()) {
      watched->next_search = {};
      watched->pause = kInterval;
    }
  }
  Publish(std::move(uses));
}

std::optional<ContainerUsage::ProcessUses> ContainerUsage::ProcessesOf(
    const WatchedContainer& watched, const std::string& uuid, const Round& round) const {
  const auto& gpus = round.report->gpus;
  const auto gpu = std::ranges::find(gpus, uuid, &gpu::ProcessReport::GpuProcesses::uuid);
  if (gpu == gpus.end()) return std::nullopt;
  std::vector<gpu::ProcessUse> own_processes;
  for (const gpu::ProcessUse& process : gpu->processes) {
    const auto reported = round.reported.find(process.pid);
    if (reported == round.reported.end() || !IsOwn(watched, reported->second.owner)) continue;
    if (!watched.container_id.empty() || IsHidden(watched, process.pid))
      own_processes.push_back(process);
  }
  return own_processes;
}

ContainerGpuUse ContainerUsage::MeasureUse(WatchedContainer* watched,
                                           const device::DeviceShare& share, const Round& round) {
  const MonotonicTime now = runner_->clock().Now();
  ContainerGpuUse use{.holder = watched->holder,
                      .uuid = share.uuid,
                      .compute = share.compute,
                      .granted = share.memory};
  limiter::LimitsFile& limits = *watched->region->limits();
  const int index = limits.Find(share.uuid.c_str());
  const auto reading_of = [index](const std::vector<UsageReading>& readings) {
    const bool has_reading = index >= 0 && static_cast<size_t>(index) < readings.size();
    return has_reading ? readings[static_cast<size_t>(index)] : UsageReading();
  };
  const UsageReading before = reading_of(watched->before), after = reading_of(watched->after);
  ContainerGpuState& gpu = watched->gpus[share.uuid];
  use.processes = after.processes;
  if (const auto processes = ProcessesOf(*watched, share.uuid, round)) {
    UnaccountedMemory::MemorySample sample;
    int percent = 0;
    for (const gpu::ProcessUse& process : *processes) {
      sample.reported += process.memory;
      percent += process.percent;
    }
    sample.processes = static_cast<int>(processes->size());
    sample.held = std::max(before.held, after.held);
    if (index >= 0) {
      sample.limit = Bytes(static_cast<int64_t>(limits.limits().gpus[index].memory.load()));
    }
    use.limit = sample.limit;
    gpu.unaccounted.Add(now, sample);
    use.reported = sample.reported;
    use.processes = std::max(use.processes, sample.processes);
    use.utilization = percent / 100.0;
    CheckBypass(*watched, *processes, round, &gpu, &use);
  }
  use.unaccounted = gpu.unaccounted.Get(now);
  use.held = after.held;
  use.peak = std::max(after.peak, use.used());
  use.refused = after.refused;
  if (index < 0) return use;
  (void)limits.SetUnaccounted(share.uuid.c_str(), static_cast<uint64_t>(use.unaccounted.count()));
  use.limit = Bytes(static_cast<int64_t>(limits.limits().gpus[index].memory.load()));
  if (watched->readable) {
    // An agent of an older version has not recorded which refusals it reported.
    if (watched->existed_before_agent && !gpu.refused) gpu.refused = after.refused;
    CheckRefusals(use, after, &gpu);
    if (gpu.unreported_refusals == 0)
      limits.SetReportedRefusals(static_cast<uint32_t>(index), *gpu.refused);
  }
  CheckLimit(use, &gpu);
  return use;
}

void ContainerUsage::CheckRefusals(const ContainerGpuUse& use, const UsageReading& reading,
                                   ContainerGpuState* gpu) {
  // A smaller count means that the container has restarted.
  const uint64_t before = gpu->refused.value_or(0);
  const uint64_t refused_now = reading.refused - (reading.refused < before ? 0 : before);
  if (refused_now > 0) gpu->refusal_limit = use.limit;
  gpu->unreported_refusals += refused_now;
  gpu->refused = reading.refused;
  const MonotonicTime now = runner_->clock().Now();
  if (gpu->unreported_refusals == 0 || now < gpu->next_refusal_event) return;
  gpu->next_refusal_event = now + kEventPause;
  const uint64_t count = std::exchange(gpu->unreported_refusals, 0);
  const std::string part = use.unaccounted == Bytes(0)
                               ? ""
                               : fmt::format(
                                     " ({:.0f} MiB now for modules, contexts and other memory of "
                                     "the driver)",
                                     MiB(use.unaccounted));
  // The Event has the peak, because the process that was refused may have ended.
  RecordEvent(
      use.holder, names::kReasonCudaOutOfMemory,
      fmt::format(
          "CUDA out of memory: container {} may use {:.0f} MiB of {} and has held up to "
          "{:.0f} MiB{}; {} was refused{}: raise the pod's request of device memory, or allocate "
          "less",
          use.holder.container, MiB(gpu->refusal_limit), use.uuid,
          MiB(std::max(use.peak, use.used())), part,
          reading.refused_bytes == Bytes(0)
              ? "a module or a context"
              : fmt::format("an allocation of {:.1f} MiB", MiB(reading.refused_bytes)),
          count > 1 ? fmt::format(", the last of {} refusals", count) : ""));
}

void ContainerUsage::CheckLimit(const ContainerGpuUse& use, ContainerGpuState* gpu) {
  const Bytes limit_before = std::exchange(gpu->limit, use.limit);
  if (use.limit == Bytes(0) || use.used() <= use.limit) return;
  const MonotonicTime now = runner_->clock().Now();
  const bool is_lowered = use.limit < limit_before;
  // Limiters refuse allocations above the limit. So if the limit was not lowered, the excess is
  // memory that no limiter counts.
  const bool has_new_excess = use.held <= use.limit && now >= gpu->next_excess_event;
  if (!is_lowered && !has_new_excess) return;
  gpu->next_excess_event = now + kEventPause;
  if (!is_lowered) {
    return RecordEvent(
        use.holder, names::kReasonMemoryLimitBelowUse,
        fmt::format(
            "container {} may use {:.0f} MiB of {} and has {:.0f} MiB, of which no limiter counts "
            "{:.0f} MiB (modules, contexts, or memory of processes without the limiter): "
            "allocations fail until the container has less, and other containers may find the GPU "
            "full",
            use.holder.container, MiB(use.limit), use.uuid, MiB(use.used()), MiB(use.unaccounted)));
  }
  RecordEvent(
      use.holder, names::kReasonMemoryLimitBelowUse,
      fmt::format("container {} holds {:.0f} MiB of {}, and may use {:.0f} MiB from now on: "
                  "its processes continue, and allocations fail until the container holds less",
                  use.holder.container, MiB(use.used()), use.uuid, MiB(use.limit)));
}

void ContainerUsage::RecordEvent(const ContainerRef& holder, std::string_view reason,
                                 std::string message) const {
  callbacks_.on_event(holder, {.warning = true, .reason = reason, .message = std::move(message)});
}

std::vector<ContainerUsage::RegionFiles> ContainerUsage::files() const {
  std::vector<RegionFiles> all;
  for (const auto& [key, watched] : watched_) {
    all.push_back({watched->holder, watched->shares, watched->env, watched->region->limits(),
                   watched->usage});
  }
  return all;
}

}  // namespace tessera::agent
