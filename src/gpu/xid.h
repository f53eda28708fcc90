// SPDX-License-Identifier: Apache-2.0
// The effect of XIDs, the driver's numbered error reports, on the health of their GPU. api/xids.inc
// is the catalog: a new XID is one line in that file.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::gpu {

enum class XidAction { kNone, kRestartApplication, kResetGpu, kRebootNode, kCheckHardware };

struct XidInfo {
  uint64_t code;
  std::string_view name;
  XidAction action;
};

// Null for a code that the catalog does not have.
const XidInfo* FindXid(uint64_t code);
// "XID 79: GPU has fallen off the bus", "XID 4242".
std::string DescribeXid(uint64_t code);
std::string_view XidActionName(XidAction action);

// The effect of an XID on the health of its GPU.
enum class XidEffect {
  kNone,
  kSuspect,        // an application's error: the GPU is still offered
  kUntilQuiet,     // unhealthy until a time without XIDs: the XID does not require a repair
  kUntilRepaired,  // unhealthy until a reset, a reboot or a driver reload
};

// The XIDs that make a GPU unhealthy: unknown XIDs, and XIDs whose action in the catalog is more
// than a restart of the application. The variables of NVIDIA's device plugin change this by lists
// separated by commas:
//   DP_DISABLE_HEALTHCHECKS  "all", "xids", or codes to ignore
//   DP_ENABLE_HEALTHCHECKS   "all", or codes that make a GPU unhealthy in any case
// Unlike in NVIDIA's plugin, an enabled code is watched even if all XIDs are disabled.
class XidPolicy {
 public:
  static XidPolicy Parse(std::string_view disable, std::string_view enable);

  XidEffect EffectOf(uint64_t xid) const;
  // Whether the XID makes a GPU unhealthy.
  bool IsCritical(uint64_t xid) const { return EffectOf(xid) >= XidEffect::kUntilQuiet; }
  // False if no XID has an effect, so that no thread needs to listen.
  bool watches_xids() const;
  // False if DP_DISABLE_HEALTHCHECKS has "all" and no code is enabled: a GPU that fails to answer
  // then stays healthy.
  bool checks_health() const { return !disable_all_ || enable_all_ || !enabled_codes_.empty(); }
  // One message for each word that is neither a code nor a keyword.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  bool disable_all_ = false;
  bool disable_xids_ = false;
  bool enable_all_ = false;
  std::set<uint64_t> disabled_codes_;
  std::set<uint64_t> enabled_codes_;
  std::vector<std::string> warnings_;
};

}  // namespace tessera::gpu
