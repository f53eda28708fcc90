// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/health_tracker.h"

#include "src/gpu/xid.h"

namespace tessera::gpu {
namespace {

std::string_view TextOf(RecoveryAction action) {
  switch (action) {
    case RecoveryAction::kNone: return "";
    case RecoveryAction::kResetGpu: return "the driver asks for a reset of the GPU";
    case RecoveryAction::kReboot: return "the driver asks for a reboot of the node";
    case RecoveryAction::kDrainP2p: return "the driver asks to drain peer-to-peer traffic";
    case RecoveryAction::kDrainAndReset: return "the driver asks to drain and reset the GPU";
  }
  return "";
}

}  // namespace

void HealthTracker::OnXid(uint64_t code, MonotonicTime now) {
  xid_ = DescribeXid(code);
  last_xid_ = now;
  repaired_ = false;
  good_polls_ = 0;
}

void HealthTracker::OnAnswer(const Status& status, std::optional<RecoveryAction> recovery,
                             MonotonicTime now) {
  hang_.clear();
  missing_.clear();
  failure_ = status.message();
  if (!status.ok()) {
    repaired_ |= status.code() == Code::kDataLoss;
    good_polls_ = 0;
    return;
  }
  if (recovery) recovery_ = TextOf(*recovery);
  if (!recovery_.empty()) {
    repaired_ = true;
    good_polls_ = 0;
    return;
  }
  ++good_polls_;
  const bool calm = repaired_ || now - last_xid_ >= rules_.xid_quiet;
  if (calm && good_polls_ >= rules_.good_polls_after_xid) xid_.clear();
}

void HealthTracker::OnHang(NvmlCall call) {
  hang_ = fmt::format("NVML call {} did not return", NvmlCallName(call));
  good_polls_ = 0;
}

void HealthTracker::OnEventsWatched(const Status& status) {
  unwatched_ = status.ok() ? "" : fmt::format("XIDs cannot be watched: {}", status.message());
}

void HealthTracker::OnMissing() { missing_ = "the driver does not report this GPU any more"; }

void HealthTracker::OnDriverReloaded() { xid_.clear(); }

device::Health HealthTracker::health() const {
  // The cause before what follows from it: a GPU that fell off the bus fails every call, too.
  if (!xid_.empty()) return device::Health::Unhealthy(xid_);
  if (rules_.probes_count) {
    if (!missing_.empty()) return device::Health::Unhealthy(missing_);
    if (!hang_.empty()) return device::Health::Unhealthy(hang_);
    if (!failure_.empty()) return device::Health::Unhealthy(failure_);
  }
  if (rules_.recovery_counts && !recovery_.empty()) return device::Health::Unhealthy(recovery_);
  if (!unwatched_.empty()) return device::Health::Unhealthy(unwatched_);
  return device::Health::Healthy();
}

}  // namespace tessera::gpu
