// SPDX-License-Identifier: Apache-2.0
// Health of one GPU from what happened to it. Pure: time comes in. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/device/gpu.h"
#include "src/gpu/nvml.h"

namespace tessera::gpu {

struct HealthRules {
  bool probes_count = true;    // a GPU that does not answer is unhealthy
  bool recovery_counts = true;  // so is one for which the driver asks for an action
  Duration xid_quiet{};
  int good_polls_after_xid = 0;
};

class HealthTracker {
 public:
  explicit HealthTracker(HealthRules rules) : rules_(rules) {}

  // A critical XID.
  void OnXid(uint64_t code, MonotonicTime now);
  // The GPU answered, or failed, a poll or the questions who it is; the latter do not ask for the
  // recovery action.
  void OnAnswer(const Status& status, std::optional<RecoveryAction> recovery, MonotonicTime now);
  // `call` is overdue.
  void OnHang(NvmlCall call);
  // XID events of this GPU cannot be watched; OK when they can again.
  void OnEventsWatched(const Status& status);
  // The driver does not report this GPU any more; until it answers again.
  void OnMissing();
  // A driver that was loaded anew has reset its GPUs: what XIDs said is history.
  void OnDriverReloaded();

  device::Health health() const;

 private:
  const HealthRules rules_;
  std::string missing_;
  std::string hang_;
  std::string failure_;
  std::string unwatched_;
  std::string recovery_;
  std::string xid_;
  MonotonicTime last_xid_{};
  bool repaired_ = false;  // lost, or wanting an action, since the last XID: then back is repaired
  int good_polls_ = 0;
};

}  // namespace tessera::gpu
