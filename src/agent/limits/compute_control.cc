// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/compute_control.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <utility>

namespace tessera::agent {
namespace {

using limiter::Arbiter;
// The time of CLOCK_MONOTONIC, which the limiters use for the times in `usage`.
int64_t NowNs() { return SystemClock().Now().time_since_epoch().count(); }

std::set<std::string> GpusWithRequests(const std::vector<ComputeControl::Member>& members) {
  std::set<std::string> gpus;
  for (const ComputeControl::Member& member : members) {
    if (member.share.request > 0) gpus.insert(member.uuid);
  }
  return gpus;
}

}  // namespace

ComputeControl::~ComputeControl() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ComputeControl::Update(std::vector<Member> members) {
  if (members.empty() && !thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    update_ = std::move(members);
  }
  changed_.notify_all();
  if (thread_.joinable()) return;
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "compute");
    Run();
  });
}

std::optional<ComputeUse> ComputeControl::TakeUse(const Uid& pod_uid, const std::string& container,
                                                  const std::string& uuid) {
  const std::lock_guard lock(mutex_);
  const auto found = meters_.find({pod_uid, container, uuid});
  if (found == meters_.end()) return std::nullopt;
  MemberMeter& meter = found->second;
  const int64_t span = meter.read_at_ns - std::exchange(meter.reported_at_ns, meter.read_at_ns);
  const double used = meter.used_ns - std::exchange(meter.reported_used_ns, meter.used_ns);
  const int64_t waited =
      meter.wait_time_ns - std::exchange(meter.reported_wait_ns, meter.wait_time_ns);
  if (span <= 0 || span == meter.read_at_ns) return std::nullopt;
  const auto part = [span](double time) { return std::max(0.0, time / static_cast<double>(span)); };
  return ComputeUse{std::min(part(used), 1.0), part(static_cast<double>(waited)),
                    std::chrono::nanoseconds(meter.wait_time_ns)};
}

void ComputeControl::Run() {
  int64_t next_tick_ns = 0;  // 0: no member
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto must_wake = [this] { return stop_ || update_.has_value(); };
    if (next_tick_ns == 0) {
      changed_.wait(lock, must_wake);
    } else {
      changed_.wait_for(
          lock, std::chrono::nanoseconds(std::max<int64_t>(0, next_tick_ns - NowNs())), must_wake);
    }
    auto update = std::exchange(update_, std::nullopt);
    if (stop_) return;
    lock.unlock();
    if (update) SetMembers(*std::move(update));
    next_tick_ns = Tick(NowNs());
    lock.lock();
  }
}

// The container's limits file may still have a rate, from an earlier tick or an earlier agent.
void ComputeControl::StopLimiting(const Member& member, uint32_t index) {
  if (member.limits->limits().compute[index].epoch.load() != 0)
    (void)member.limits->SetCompute(member.uuid.c_str(), 0, 0);
}

// A container that restarts has a new `usage` file, so it gets a new id and a new meter.
void ComputeControl::SetMembers(std::vector<Member> members) {
  const int64_t now = NowNs();
  const std::set<std::string> divided_gpus = GpusWithRequests(members);
  std::map<Key, KnownMember> known;
  for (Member& member : members) {
    const int index = member.limits->Find(member.uuid.c_str());
    if (index < 0) continue;
    if (!divided_gpus.contains(member.uuid)) {
      StopLimiting(member, static_cast<uint32_t>(index));
      continue;
    }
    if (member.usage == nullptr) continue;
    const Key key{member.pod_uid, member.container, member.uuid};
    KnownMember& entry = known[key];
    const auto old = members_.find(key);
    const bool continues = old != members_.end() && old->second.member.usage == member.usage;
    entry.id = continues ? old->second.id : ++last_id_;
    entry.index = static_cast<uint32_t>(index);
    entry.usage = continues && old->second.index == entry.index
                      ? old->second.usage
                      : std::make_shared<ComputeUsageFile>(member.usage, entry.index);
    GpuArbiter& gpu = gpus_[member.uuid];
    gpu.arbiter.Set(entry.id, member.share);
    // The correction that an earlier agent has found for this container; 0: none.
    const uint32_t bias = member.limits->limits().compute[index].bias;
    if (old == members_.end() && bias != 0) {
      gpu.arbiter.ResumeBias(entry.id, static_cast<double>(bias) / limiter::kOne);
    }
    if (member.utilization) gpu.arbiter.RecordUtilization(now, entry.id, *member.utilization);
    entry.member = std::move(member);
  }
  for (const auto& [key, old] : members_) {
    const auto continued = known.find(key);
    if (continued != known.end() && continued->second.id == old.id) continue;
    gpus_[old.member.uuid].arbiter.Remove(old.id);
    const std::lock_guard lock(mutex_);
    meters_.erase(key);
  }
  members_ = std::move(known);
  GroupByGpu();
}

void ComputeControl::GroupByGpu() {
  for (auto& [uuid, gpu] : gpus_) gpu.members.clear();
  const std::lock_guard lock(mutex_);
  for (const auto& [key, known] : members_) {
    gpus_[known.member.uuid].members.push_back({.id = known.id,
                                                .limits = known.member.limits.get(),
                                                .usage = known.usage.get(),
                                                .index = known.index,
                                                .meter = &meters_[key]});
  }
  for (auto& [uuid, gpu] : gpus_) std::ranges::sort(gpu.members, {}, &TickMember::id);
  std::erase_if(gpus_, [](const auto& gpu) { return gpu.second.members.empty(); });
}

// Returns the time of the next tick; 0 if there is no member.
int64_t ComputeControl::Tick(int64_t now) {
  int64_t next_tick_ns = 0;
  for (auto& [uuid, gpu] : gpus_) {
    if (gpu.next_tick_ns <= now) TickGpu(now, &gpu);
    if (next_tick_ns == 0 || gpu.next_tick_ns < next_tick_ns) next_tick_ns = gpu.next_tick_ns;
  }
  return next_tick_ns;
}

// Fills `totals_` and the first totals_.size() elements of `readings_`.
void ComputeControl::ReadMembers(int64_t now, const GpuArbiter& gpu) {
  totals_.clear();
  for (const TickMember& member : gpu.members) {
    if (!gpu.arbiter.IsDue(now, member.id)) continue;
    if (readings_.size() == totals_.size()) readings_.emplace_back();
    Arbiter::ContainerReading& reading = readings_[totals_.size()];
    reading.id = member.id;
    if (const auto totals = member.usage->Read(&reading)) {
      totals_.emplace_back(member.meter, *totals);
    }
  }
}

void ComputeControl::TickGpu(int64_t now, GpuArbiter* gpu) {
  ReadMembers(now, *gpu);
  const auto& division = gpu->arbiter.Tick(now, std::span(readings_).first(totals_.size()));
  TESSERA_CHECK(division.allowances.size() == gpu->members.size());
  gpu->next_tick_ns = division.next_tick;
  // Members, allowances and parts are in the order of the ids.
  auto part = division.parts.begin();
  for (size_t i = 0; i < gpu->members.size(); ++i) {
    const TickMember& member = gpu->members[i];
    member.limits->Write(member.index, division.allowances[i]);
    for (; part != division.parts.end() && part->id == member.id; ++part) {
      member.limits->Write(member.index, *part);
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [meter, totals] : totals_) {
    // The sum decreases when a process ends.
    const int64_t more = std::max<int64_t>(0, totals.gpu_time_ns - meter->gpu_time_ns);
    meter->used_ns += meter->bias * static_cast<double>(more);
    meter->gpu_time_ns = totals.gpu_time_ns;
    meter->wait_time_ns = totals.wait_time_ns;
    meter->read_at_ns = now;
  }
  for (size_t i = 0; i < gpu->members.size(); ++i) {
    gpu->members[i].meter->bias = static_cast<double>(division.allowances[i].bias) / limiter::kOne;
  }
}

}  // namespace tessera::agent
