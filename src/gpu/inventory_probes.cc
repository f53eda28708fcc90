// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "src/gpu/driver_files.h"
#include "src/gpu/inventory_impl.h"

namespace tessera::gpu {
namespace {

// A GPU that hangs is queried again on another thread at this interval, at most kMaxStuckPerGpu
// times, and earlier if a query returns.
constexpr Duration kStuckRetry = std::chrono::seconds(30);
constexpr int kMaxStuckPerGpu = 3;
constexpr int kMaxLinkTries = 5;

}  // namespace

void Inventory::Impl::Probe(int index) {
  const GpuQueryState& query_state = queries_[index];
  if (query_state.busy || query_state.stuck >= kMaxStuckPerGpu) return;
  const GpuTable::GpuRecord* record = table_.At(index);
  if (record != nullptr && query_state.last_ok) {
    Poll(index, *record);
  } else {
    Identify(index);
  }
}

template <typename Report>
void Inventory::Impl::Query(int index, std::function<void(NvmlCalls*, Report*)> work,
                            void (Impl::*on_report)(int index, const Report&)) {
  queries_[index].busy = true;
  jobs_.Start<Report>(
      fmt::format("nvml-gpu{}", index), options_.call_deadline, std::move(work),
      [this, index, on_report](Report& report, JobRunner::AnswerState state) {
        if (!state.current) return;
        if (state.late) --queries_[index].stuck;
        if (!state.late) queries_[index].busy = false;
        (this->*on_report)(index, report);
      },
      [this, index](NvmlCall call, JobRunner::AnswerState state) {
        if (state.current) OnOverdue(index, call);
      });
}

void Inventory::Impl::Identify(int index) {
  Query<IdentityReport>(
      index,
      [nvml = nvml_, index, root = DriverRoot(), sys = options_.sys_root](NvmlCalls* calls,
                                                                          IdentityReport* report) {
        IdentifyGpu(*nvml, index, SysRootOf(root, sys), calls, report);
      },
      &Impl::OnIdentityReport);
}

void Inventory::Impl::OnIdentityReport(int index, const IdentityReport& report) {
  GpuQueryState& query_state = queries_[index];
  query_state.answered = true;
  query_state.last_ok = report.status.ok();
  GpuTable::GpuRecord* record = table_.OnIdentifyAnswer(index, report, runner_->clock().Now());
  // The whole session may be dead, but one GPU's answer does not prove it.
  if (report.status.code() == Code::kFailedPrecondition) CheckDriver();
  if (!query_state.last_ok || record == nullptr) return RetryFailed(index);
  query_state.backoff = Duration::zero();
  if (listener_ != nullptr) listener_->Watch(record->handle);
  if (links_started_ && !record->links) QueryLinks(index);
  if (!record->health.health().ok()) ArmRetry(index, options_.retry_max);
}

void Inventory::Impl::Poll(int index, const GpuTable::GpuRecord& record) {
  Query<PollReport>(
      index,
      [nvml = nvml_, handle = record.handle, memory = record.supports_memory_info,
       fabric = record.supports_fabric_info](NvmlCalls* calls, PollReport* report) {
        PollGpu(*nvml, handle, memory, fabric, calls, report);
      },
      &Impl::OnPollReport);
}

void Inventory::Impl::OnPollReport(int index, const PollReport& report) {
  GpuQueryState& query_state = queries_[index];
  GpuTable::GpuRecord* record = table_.At(index);
  if (record == nullptr) return;
  query_state.last_ok = report.status.ok();
  record->health.OnAnswer(report.status, report.recovery, runner_->clock().Now());
  if (report.status.ok()) {
    record->health.OnMigMode(report.mig);
    if (report.has_fabric_answer) record->gpu.fabric = report.fabric;
    if (report.supports_recovery && report.recovery == RecoveryAction::kNone) {
      record->health.OnNoRecoveryAction();
    }
  }
  // The whole session may be dead, but one GPU's answer does not prove it.
  if (report.status.code() == Code::kFailedPrecondition) CheckDriver();
  if (!query_state.last_ok) return RetryFailed(index);
  query_state.backoff = Duration::zero();
  if (record->health.health().ok()) return;
  // Watches again, in case an earlier attempt to watch the GPU's events failed.
  if (listener_ != nullptr) listener_->Watch(record->handle);
  ArmRetry(index, options_.retry_max);
}

void Inventory::Impl::OnOverdue(int index, NvmlCall call) {
  GpuQueryState& query_state = queries_[index];
  query_state.busy = false;
  query_state.answered = true;
  query_state.last_ok = false;
  ++query_state.stuck;
  table_.OnHang(index, call);
  ArmRetry(index, kStuckRetry);
}

void Inventory::Impl::StartLinks() {
  if (links_started_) return;
  links_started_ = true;
  for (int index = 0; index < table_.size(); ++index) {
    const GpuTable::GpuRecord* record = table_.At(index);
    if (record != nullptr && queries_[index].last_ok && !record->links) QueryLinks(index);
  }
}

void Inventory::Impl::QueryLinks(int index) {
  GpuQueryState& query_state = queries_[index];
  if (query_state.links_busy || query_state.link_tries >= kMaxLinkTries) return;
  query_state.links_busy = true;
  ++query_state.link_tries;
  const GpuTable::GpuRecord& queried = *table_.At(index);
  std::vector<PeerGpu> peers;
  for (const auto& [uuid, record] : table_.records()) {
    if (uuid == queried.gpu.uuid || !record.present || record.handle == nullptr) continue;
    peers.push_back({uuid, record.handle});
  }
  const auto store_report = [this, index](LinkReport report) {
    queries_[index].links_busy = false;
    if (GpuTable::GpuRecord* record = table_.At(index)) record->links = std::move(report);
  };
  jobs_.Start<LinkReport>(
      fmt::format("nvml-links{}", index), options_.call_deadline,
      [nvml = nvml_, handle = queried.handle, peers = std::move(peers)](
          NvmlCalls* calls, LinkReport* report) { ReadLinks(*nvml, handle, peers, calls, report); },
      [store_report](LinkReport& report, JobRunner::AnswerState state) {
        if (state.current) store_report(std::move(report));
      },
      // Links are optional. If the GPU itself hangs, its next poll finds out.
      [store_report](NvmlCall call, JobRunner::AnswerState state) {
        if (!state.current) return;
        LinkReport report;
        report.problem = fmt::format("NVML call {} did not return", NvmlCallName(call));
        store_report(std::move(report));
      });
}

void Inventory::Impl::ArmRetry(int index, Duration delay) {
  GpuQueryState& query_state = queries_[index];
  if (query_state.retry_armed) return;
  query_state.retry_armed = true;
  PostInSession(delay, [this, index] {
    queries_[index].retry_armed = false;
    if (phase_ == SessionPhase::kOpen) Probe(index);
  });
}

void Inventory::Impl::RetryFailed(int index) {
  Duration& backoff = queries_[index].backoff;
  backoff = NextWait(backoff, options_.retry_min, options_.retry_max);
  ArmRetry(index, backoff);
}

void Inventory::Impl::OnXid(const XidEvent& event) {
  GpuTable::GpuRecord* record = table_.FindByHandle(event.device);
  ++stats_.xids[{record == nullptr ? "" : record->gpu.uuid, event.xid}];
  if (options_.on_xid) options_.on_xid(record == nullptr ? "" : record->gpu.uuid, event.xid);
  const XidEffect effect = options_.xids.EffectOf(event.xid);
  const bool critical = options_.xids.IsCritical(event.xid);
  Log(critical ? Severity::kError : Severity::kWarning, DescribeXid(event.xid),
      {{"gpu", record == nullptr ? "unknown" : record->gpu.uuid}, {"critical", critical}});
  if (effect == XidEffect::kNone) return;
  if (record == nullptr) return critical ? PollNow() : void();
  record->health.OnXid(event.xid, effect, runner_->clock().Now());
  // Probes at once, while the fault is visible. If the probe finds the GPU lost or in need of a
  // reset, a later good probe proves the repair. Otherwise the GPU must stay without XIDs for a
  // while.
  const int index = record->gpu.index;
  Probe(index);
  ArmRetry(index, options_.retry_max);
}

}  // namespace tessera::gpu
