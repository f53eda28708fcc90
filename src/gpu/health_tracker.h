// SPDX-License-Identifier: Apache-2.0
// Derives the health of one GPU from events. Pure: the caller passes the time. Included only in
// src/gpu.
//
//   Healthy     none of the following
//   Suspect     an application's XID; ends after `xid_quiet` without another XID
//   Unhealthy   an XID that needs a repair, or an unknown XID; a call that fails or hangs; a
//               recovery action that the driver requests; MIG mode
//   Recovering  an XID was repaired: needs `good_polls_after_xid` good polls
//
// Any of these proves a repair: a lost GPU answers again; the driver no longer requests a recovery
// action; the driver was reloaded. An XID from before a restart of the agent also counts as
// repaired if the driver supports recovery actions and requests none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/device/gpu.h"
#include "src/gpu/nvml.h"
#include "src/gpu/xid.h"

namespace tessera::gpu {

struct HealthRules {
  bool failed_probe_is_unhealthy = true;     // a GPU that fails to answer is unhealthy
  bool recovery_action_is_unhealthy = true;  // a requested recovery action makes the GPU unhealthy
  Duration xid_quiet{};
  int good_polls_after_xid = 0;
};

class HealthTracker {
 public:
  explicit HealthTracker(HealthRules rules) : rules_(rules) {}

  void OnXid(uint64_t code, XidEffect effect, MonotonicTime now);
  // Restores an XID that needed a repair when the previous run of the agent ended.
  void RestoreXid(uint64_t code);
  // The GPU answered the query of a poll or of an identification, possibly with an error.
  // `recovery` is empty for an identification, which does not read the recovery action.
  void OnAnswer(const Status& status, std::optional<RecoveryAction> recovery, MonotonicTime now);
  // The driver supports recovery actions and requests none.
  void OnNoRecoveryAction();
  // `call` is overdue.
  void OnHang(NvmlCall call);
  // The result of registering this GPU for XID events.
  void OnEventsWatched(const Status& status);
  // The driver no longer reports this GPU; lasts until the GPU answers.
  void OnMissing();
  // A reloaded driver has reset its GPUs.
  void OnDriverReloaded();
  void OnMigMode(bool on) { mig_ = on; }

  device::Health health() const;
  bool mig() const { return mig_; }
  // The XID that needs a repair, if any.
  std::optional<uint64_t> unrepaired_xid() const;

 private:
  struct PendingXid {
    uint64_t code;
    bool needs_repair;
    bool from_earlier_run = false;
    bool repaired = false;
    MonotonicTime at{};
  };

  const HealthRules rules_;
  // Reasons why the GPU is unhealthy; an empty reason does not apply.
  std::string missing_reason_;
  std::string hang_reason_;
  std::string failure_reason_;
  std::string unwatched_reason_;
  std::string recovery_reason_;
  bool mig_ = false;
  std::optional<PendingXid> xid_;
  std::optional<uint64_t> suspect_xid_;
  MonotonicTime suspect_at_{};
  int good_polls_ = 0;
};

}  // namespace tessera::gpu
