// SPDX-License-Identifier: Apache-2.0
// Health of one GPU from what happened to it. Pure: time comes in. Private to this room.
//
//   Healthy     Suspect      an XID of an application; over when none came for `xid_quiet`
//      |        Unhealthy    an XID that needs a repair or quiet; a call that fails or hangs; an
//      |                     action that the driver asks for; MIG mode
//   Recovering               an XID was repaired: `good_polls_after_xid` good answers to go
//
// A repair shows in one of: the GPU was lost and answers again; the driver asked for an action and
// asks no more; the driver was loaded anew. An XID that is remembered from before a restart of the
// agent is repaired, too, when the driver knows recovery actions and asks for none.
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
  bool probes_count = true;     // a GPU that does not answer is unhealthy
  bool recovery_counts = true;  // so is one for which the driver asks for an action
  Duration xid_quiet{};
  int good_polls_after_xid = 0;
};

class HealthTracker {
 public:
  explicit HealthTracker(HealthRules rules) : rules_(rules) {}

  void OnXid(uint64_t code, XidEffect effect, MonotonicTime now);
  // An XID that waited for its repair when the agent last ran.
  void Remember(uint64_t code);
  // The GPU answered, or failed, a poll or the questions who it is; the latter do not ask for the
  // recovery action.
  void OnAnswer(const Status& status, std::optional<RecoveryAction> recovery, MonotonicTime now);
  // The driver knows recovery actions, and asks for none.
  void OnDriverContent();
  // `call` is overdue.
  void OnHang(NvmlCall call);
  // XID events of this GPU cannot be watched; OK when they can again.
  void OnEventsWatched(const Status& status);
  // The driver does not report this GPU any more; until it answers again.
  void OnMissing();
  // A driver that was loaded anew has reset its GPUs.
  void OnDriverReloaded();
  void OnMigMode(bool on) { mig_ = on; }

  device::Health health() const;
  bool mig() const { return mig_; }
  // The XID that waits for its repair, if one does.
  std::optional<uint64_t> unrepaired_xid() const;

 private:
  struct Xid {
    uint64_t code;
    bool needs_repair;
    bool remembered = false;
    bool repaired = false;
    MonotonicTime at{};
  };

  const HealthRules rules_;
  std::string missing_;
  std::string hang_;
  std::string failure_;
  std::string unwatched_;
  std::string recovery_;
  bool mig_ = false;
  std::optional<Xid> xid_;
  std::optional<uint64_t> suspect_xid_;
  MonotonicTime suspect_at_{};
  int good_polls_ = 0;
};

}  // namespace tessera::gpu
