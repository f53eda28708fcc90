// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/health_tracker.h"

#include <fmt/format.h>

#include <iterator>

#include "src/gpu/xid.h"

namespace tessera::gpu {
namespace {

// By RecoveryAction.
constexpr std::string_view kRecoveryReasons[] = {
    "",
    "the driver requests a reset of the GPU",
    "the driver requests a reboot of the node",
    "the driver requests to drain peer-to-peer traffic",
    "the driver requests to drain and reset the GPU",
};
static_assert(std::size(kRecoveryReasons) == size_t(RecoveryAction::kDrainAndReset) + 1);

}  // namespace

void HealthTracker::OnXid(uint64_t code, XidEffect effect, MonotonicTime now) {
  if (effect == XidEffect::kNone) return;
  if (effect == XidEffect::kSuspect) {
    suspect_xid_ = code;
    suspect_at_ = now;
    return;
  }
  good_polls_ = 0;
  const bool needs_repair = effect == XidEffect::kUntilRepaired;
  // An XID that needs a repair takes precedence over one that does not.
  if (!needs_repair && xid_ && xid_->needs_repair) return;
  xid_ = PendingXid{.code = code, .needs_repair = needs_repair, .at = now};
}

void HealthTracker::RestoreXid(uint64_t code) {
  xid_ = PendingXid{.code = code, .needs_repair = true, .from_earlier_run = true};
}

void HealthTracker::OnAnswer(const Status& status, std::optional<RecoveryAction> recovery,
                             MonotonicTime now) {
  hang_reason_.clear();
  missing_reason_.clear();
  failure_reason_ = status.message();
  if (status.ok() && recovery) recovery_reason_ = kRecoveryReasons[size_t(*recovery)];
  if (!status.ok() || !recovery_reason_.empty()) {
    if (xid_ && (status.ok() || status.code() == Code::kDataLoss)) xid_->repaired = true;
    good_polls_ = 0;
    return;
  }
  ++good_polls_;
  if (suspect_xid_ && now - suspect_at_ >= rules_.xid_quiet) suspect_xid_.reset();
  if (!xid_ || good_polls_ < rules_.good_polls_after_xid) return;
  const bool quiet = !xid_->needs_repair && now - xid_->at >= rules_.xid_quiet;
  if (xid_->repaired || quiet) xid_.reset();
}

void HealthTracker::OnNoRecoveryAction() {
  if (!xid_ || !xid_->from_earlier_run || xid_->repaired) return;
  xid_->repaired = true;
  good_polls_ = 0;
}

void HealthTracker::OnHang(NvmlCall call) {
  hang_reason_ = fmt::format("NVML call {} did not return", NvmlCallName(call));
  good_polls_ = 0;
}

void HealthTracker::OnEventsWatched(const Status& status) {
  unwatched_reason_ = status.ok() ? "" : fmt::format("cannot watch XIDs: {}", status.message());
}

void HealthTracker::OnMissing() { missing_reason_ = "the driver no longer reports this GPU"; }

void HealthTracker::OnDriverReloaded() {
  suspect_xid_.reset();
  if (!xid_) return;
  xid_->repaired = true;
  good_polls_ = 0;
}

std::optional<uint64_t> HealthTracker::unrepaired_xid() const {
  if (!xid_ || !xid_->needs_repair) return std::nullopt;
  return xid_->code;
}

device::Health HealthTracker::health() const {
  const auto other_reason = [this]() -> std::string {
    if (rules_.failed_probe_is_unhealthy) {
      for (const std::string* reason : {&missing_reason_, &hang_reason_, &failure_reason_}) {
        if (!reason->empty()) return *reason;
      }
    }
    if (rules_.recovery_action_is_unhealthy && !recovery_reason_.empty()) return recovery_reason_;
    return unwatched_reason_;
  }();
  // Names the XID first, because it causes the other reasons: all calls fail on a GPU that fell off
  // the bus.
  if (xid_ && xid_->repaired && other_reason.empty()) {
    return {device::Health::State::kRecovering, "recovering from " + DescribeXid(xid_->code)};
  }
  if (xid_) {
    const XidInfo* info = FindXid(xid_->code);
    const bool with_action = xid_->needs_repair && info != nullptr;
    return device::Health::Unhealthy(
        DescribeXid(xid_->code) +
        (with_action ? fmt::format("; to do: {}", XidActionName(info->action)) : ""));
  }
  if (!other_reason.empty()) return device::Health::Unhealthy(other_reason);
  if (mig_) {
    return device::Health::Unhealthy(
        "MIG mode is on, and MIG slices are not supported yet: turn it off (nvidia-smi -mig 0)");
  }
  if (suspect_xid_) return {device::Health::State::kSuspect, DescribeXid(*suspect_xid_)};
  return device::Health::Healthy();
}

}  // namespace tessera::gpu
