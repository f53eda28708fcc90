// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/xid.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/base/strings.h"

namespace tessera::gpu {
namespace {

using enum XidAction;

constexpr XidInfo kCatalog[] = {
#define TESSERA_XID(code, name, action) {code, name, action},
#include "api/xids.inc"
#undef TESSERA_XID
};

bool NeedsRepair(XidAction action) {
  return action == kResetGpu || action == kRebootNode || action == kCheckHardware;
}

std::optional<uint64_t> ParseCode(std::string_view word) {
  const Result<int64_t> code = ParseInt(word);
  if (!code.ok() || *code < 0) return std::nullopt;
  return static_cast<uint64_t>(*code);
}

}  // namespace

const XidInfo* FindXid(uint64_t code) {
  const auto info = std::ranges::lower_bound(kCatalog, code, {}, &XidInfo::code);
  return info != std::end(kCatalog) && info->code == code ? &*info : nullptr;
}

std::string DescribeXid(uint64_t code) {
  const XidInfo* info = FindXid(code);
  return info == nullptr ? fmt::format("XID {}", code)
                         : fmt::format("XID {}: {}", code, info->name);
}

std::string_view XidActionName(XidAction action) {
  switch (action) {
    case kRestartApplication:
      return "restart the application";
    case kResetGpu:
      return "reset the GPU";
    case kRebootNode:
      return "reboot the node";
    case kCheckHardware:
      return "check the hardware";
    case kNone:
      break;
  }
  return "none";
}

XidPolicy XidPolicy::Parse(std::string_view disable, std::string_view enable) {
  XidPolicy policy;
  for (const std::string_view word : SplitList(disable)) {
    if (word == "all") {
      policy.disable_all_ = true;
    } else if (word == "xids") {
      policy.disable_xids_ = true;
    } else if (const auto code = ParseCode(word)) {
      policy.disabled_codes_.insert(*code);
    } else {
      policy.warnings_.push_back(
          fmt::format("DP_DISABLE_HEALTHCHECKS: \"{}\" is not an XID", word));
    }
  }
  for (const std::string_view word : SplitList(enable)) {
    if (word == "all") {
      policy.enable_all_ = true;
    } else if (const auto code = ParseCode(word)) {
      policy.enabled_codes_.insert(*code);
    } else {
      policy.warnings_.push_back(fmt::format("DP_ENABLE_HEALTHCHECKS: \"{}\" is not an XID", word));
    }
  }
  return policy;
}

XidEffect XidPolicy::EffectOf(uint64_t xid) const {
  const XidInfo* info = FindXid(xid);
  if (info != nullptr && NeedsRepair(info->action)) {
    const bool watched = enable_all_ || enabled_codes_.contains(xid) ||
                         (!disable_all_ && !disable_xids_ && !disabled_codes_.contains(xid));
    return watched ? XidEffect::kUntilRepaired : XidEffect::kNone;
  }
  if (enable_all_ || enabled_codes_.contains(xid)) return XidEffect::kUntilQuiet;
  if (disable_all_ || disable_xids_ || disabled_codes_.contains(xid)) return XidEffect::kNone;
  // A code of a newer driver: the driver's recovery action determines whether it needs a repair.
  if (info == nullptr) return XidEffect::kUntilQuiet;
  return info->action == kRestartApplication ? XidEffect::kSuspect : XidEffect::kNone;
}

bool XidPolicy::watches_xids() const {
  return enable_all_ || !enabled_codes_.empty() || (!disable_all_ && !disable_xids_);
}

}  // namespace tessera::gpu
