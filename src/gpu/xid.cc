// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/xid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "src/base/strings.h"

namespace tessera::gpu {
namespace {

using enum XidCause;
using enum XidAction;

// Ascending by code.
constexpr XidInfo kCatalogue[] = {
    {1, "Invalid or corrupted push buffer stream", kUnclear, kRestartApplication},
    {8, "GPU stopped processing", kUnclear, kRestartApplication},
    {9, "Driver error programming GPU", kDriver, kResetGpu},
    {11, "Invalid or corrupted push buffer stream", kUnclear, kRestartApplication},
    {12, "Driver error handling GPU exception", kDriver, kResetGpu},
    {13, "Graphics engine exception", kApplication, kRestartApplication},
    {16, "Display engine hung", kDriver, kResetGpu},
    {18, "Bus mastering disabled in PCI configuration space", kHardware, kRebootNode},
    {24, "GPU semaphore timeout", kUnclear, kResetGpu},
    {25, "Invalid or illegal push buffer stream", kUnclear, kRestartApplication},
    {26, "Framebuffer timeout", kHardware, kResetGpu},
    {31, "GPU memory page fault", kApplication, kRestartApplication},
    {32, "Invalid or corrupted push buffer stream (PBDMA)", kUnclear, kRestartApplication},
    {38, "Driver firmware error", kDriver, kResetGpu},
    {43, "GPU stopped processing", kApplication, kRestartApplication},
    {44, "Graphics engine fault during context switch", kDriver, kResetGpu},
    {45, "Preemptive cleanup, due to previous errors", kApplication, kRestartApplication},
    {46, "GPU stopped processing", kUnclear, kResetGpu},
    {48, "Double-bit ECC error", kHardware, kResetGpu},
    {54, "Auxiliary power is not connected to the GPU board", kHardware, kCheckHardware},
    {56, "Display engine error", kHardware, kCheckHardware},
    {57, "Error programming video memory interface", kHardware, kCheckHardware},
    {58, "Unstable video memory interface detected", kHardware, kResetGpu},
    {61, "Internal micro-controller breakpoint or warning", kUnclear, kResetGpu},
    {62, "Internal micro-controller halt", kUnclear, kResetGpu},
    {63, "ECC page retirement or row remapping recorded", kHardware, kResetGpu},
    {64, "ECC page retirement or row remapping failed", kHardware, kResetGpu},
    {66, "Illegal access by driver", kDriver, kResetGpu},
    {68, "NVDEC0 exception", kApplication, kRestartApplication},
    {69, "Graphics engine class error", kApplication, kRestartApplication},
    {73, "NVENC2 error", kUnclear, kRestartApplication},
    {74, "NVLink error", kHardware, kResetGpu},
    {78, "vGPU start error", kDriver, kNone},
    {79, "GPU has fallen off the bus", kHardware, kRebootNode},
    {80, "Corrupted data sent to GPU", kHardware, kResetGpu},
    {81, "VGA subsystem error", kHardware, kCheckHardware},
    {92, "High single-bit ECC error rate", kHardware, kCheckHardware},
    {93, "Non-fatal violation of provisioned infoROM wear limit", kHardware, kNone},
    {94, "Contained ECC error", kHardware, kRestartApplication},
    {95, "Uncontained ECC error", kHardware, kResetGpu},
    {106, "SMBPBI test message", kDriver, kNone},
    {109, "Context switch timeout", kApplication, kRestartApplication},
    {110, "Security fault", kHardware, kResetGpu},
    {119, "GSP RPC timeout", kDriver, kResetGpu},
    {120, "GSP error", kDriver, kResetGpu},
    {121, "C2C link error", kHardware, kResetGpu},
    {122, "SPI PMU RPC read failure", kHardware, kResetGpu},
    {123, "SPI PMU RPC write failure", kHardware, kResetGpu},
    {124, "SPI PMU RPC erase failure", kHardware, kResetGpu},
    {125, "infoROM file system failure", kHardware, kCheckHardware},
    {136, "NVLink ALI training failure", kHardware, kResetGpu},
    {137, "NVLink privilege error (FLA)", kApplication, kRestartApplication},
    {140, "Unrecovered ECC error", kHardware, kResetGpu},
    {143, "GPU initialization failure", kHardware, kResetGpu},
    {144, "NVLink SAW error", kHardware, kResetGpu},
    {145, "NVLink RLW error", kHardware, kResetGpu},
    {146, "NVLink TLW error", kHardware, kResetGpu},
    {147, "NVLink TREX error", kHardware, kResetGpu},
    {148, "NVLink NVLPW_CTRL error", kHardware, kResetGpu},
    {149, "NVLink NETIR error", kHardware, kResetGpu},
    {150, "NVLink MSE error", kHardware, kResetGpu},
    {151, "Key rotation error", kDriver, kResetGpu},
    {154, "GPU recovery action changed", kUnclear, kNone},
    {155, "NVLink software-defined error", kHardware, kResetGpu},
    {156, "Resource retirement event", kHardware, kNone},
    {157, "Resource retirement failure", kHardware, kResetGpu},
    {158, "GPU fatal timeout", kHardware, kResetGpu},
};

// Errors of an application; the GPU itself goes on.
constexpr std::array<uint64_t, 6> kIgnored = {13, 31, 43, 45, 68, 109};

std::optional<uint64_t> ParseCode(std::string_view word) {
  const Result<int64_t> code = ParseInt(word);
  if (!code.ok() || *code < 0) return std::nullopt;
  return static_cast<uint64_t>(*code);
}

}  // namespace

std::span<const XidInfo> XidCatalogue() { return kCatalogue; }

const XidInfo* FindXid(uint64_t code) {
  const auto info = std::ranges::lower_bound(kCatalogue, code, {}, &XidInfo::code);
  return info != std::end(kCatalogue) && info->code == code ? &*info : nullptr;
}

std::string DescribeXid(uint64_t code) {
  const XidInfo* info = FindXid(code);
  return info == nullptr ? fmt::format("XID {}", code) : fmt::format("XID {}: {}", code, info->name);
}

std::string_view XidCauseName(XidCause cause) {
  switch (cause) {
    case kApplication: return "application";
    case kHardware: return "hardware";
    case kDriver: return "driver";
    case kUnclear: break;
  }
  return "unclear";
}

std::string_view XidActionName(XidAction action) {
  switch (action) {
    case kRestartApplication: return "restart the application";
    case kResetGpu: return "reset the GPU";
    case kRebootNode: return "reboot the node";
    case kCheckHardware: return "check the hardware";
    case kNone: break;
  }
  return "none";
}

XidPolicy::XidPolicy() : disabled_(kIgnored.begin(), kIgnored.end()) {}

XidPolicy XidPolicy::Parse(std::string_view disable, std::string_view enable) {
  XidPolicy policy;
  for (const std::string_view word : SplitList(disable)) {
    if (word == "all") {
      policy.disable_all_ = true;
    } else if (word == "xids") {
      policy.disable_xids_ = true;
    } else if (const auto code = ParseCode(word)) {
      policy.disabled_.insert(*code);
    } else {
      policy.warnings_.push_back(fmt::format("DP_DISABLE_HEALTHCHECKS: \"{}\" is no XID", word));
    }
  }
  for (const std::string_view word : SplitList(enable)) {
    if (word == "all") {
      policy.enable_all_ = true;
    } else if (const auto code = ParseCode(word)) {
      policy.enabled_.insert(*code);
    } else {
      policy.warnings_.push_back(fmt::format("DP_ENABLE_HEALTHCHECKS: \"{}\" is no XID", word));
    }
  }
  return policy;
}

bool XidPolicy::IsCritical(uint64_t xid) const {
  if (enable_all_ || enabled_.contains(xid)) return true;
  return !disable_all_ && !disable_xids_ && !disabled_.contains(xid);
}

bool XidPolicy::watches_any() const {
  return enable_all_ || !enabled_.empty() || (!disable_all_ && !disable_xids_);
}

}  // namespace tessera::gpu
