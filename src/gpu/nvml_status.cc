// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/nvml_status.h"

#include "api/nvml_abi.h"

namespace tessera::gpu {
namespace {

constexpr std::string_view kCallNames[] = {
#define NVML_CALL(call, member, function, older) #function,
#include "src/gpu/nvml_calls.inc"
#undef NVML_CALL
};

struct ReturnInfo {
  nvml::Return value;
  Code code;
  std::string_view text;
};
using nvml::Return;
constexpr ReturnInfo kReturns[] = {
    {Return::kUninitialized, Code::kFailedPrecondition, "NVML is not initialized"},
    {Return::kInvalidArgument, Code::kInvalidArgument, "invalid argument"},
    {Return::kNotSupported, Code::kUnimplemented, "not supported"},
    {Return::kNoPermission, Code::kPermissionDenied, "no permission"},
    {Return::kNotFound, Code::kNotFound, "not found"},
    {Return::kInsufficientSize, Code::kInternal, "buffer too small"},
    {Return::kInsufficientPower, Code::kUnavailable, "power cables are not attached"},
    {Return::kDriverNotLoaded, Code::kFailedPrecondition, "the NVIDIA driver is not loaded"},
    {Return::kTimeout, Code::kDeadlineExceeded, "timeout"},
    {Return::kIrqIssue, Code::kUnavailable, "the kernel found an interrupt problem"},
    {Return::kLibraryNotFound, Code::kFailedPrecondition, "NVML's library was not found"},
    {Return::kFunctionNotFound, Code::kUnimplemented, "the driver has no such function"},
    {Return::kCorruptedInforom, Code::kDataLoss, "infoROM is corrupted"},
    {Return::kGpuIsLost, Code::kDataLoss, "GPU is lost"},
    {Return::kResetRequired, Code::kDataLoss, "GPU requires a reset"},
    {Return::kOperatingSystem, Code::kUnavailable, "the operating system blocks the GPU"},
    {Return::kLibRmVersionMismatch, Code::kFailedPrecondition,
     "library and kernel module are of different driver versions"},
    {Return::kInUse, Code::kUnavailable, "in use"},
    {Return::kMemory, Code::kResourceExhausted, "out of memory"},
    {Return::kInsufficientResources, Code::kResourceExhausted, "insufficient resources"},
    {Return::kArgumentVersionMismatch, Code::kUnimplemented, "struct version is not known"},
    {Return::kDeprecated, Code::kUnimplemented, "deprecated"},
    {Return::kNotReady, Code::kUnavailable, "not ready"},
    {Return::kGpuNotFound, Code::kNotFound, "GPU not found"},
    {Return::kInvalidState, Code::kFailedPrecondition, "invalid state"},
    {Return::kUnknown, Code::kUnknown, "unknown error"},
};

}  // namespace

std::string_view NvmlCallName(NvmlCall call) { return kCallNames[static_cast<size_t>(call)]; }

Status NvmlStatus(NvmlCall call, int result) {
  if (result == 0) return Status::Ok();
  for (const ReturnInfo& info : kReturns) {
    if (static_cast<int>(info.value) != result) continue;
    return Error(info.code, "{}: {}", NvmlCallName(call), info.text);
  }
  return Error(Code::kUnknown, "{}: NVML error {}", NvmlCallName(call), result);
}

std::string_view NvmlErrorName(const Status& status) {
  for (const ReturnInfo& info : kReturns) {
    // Matches "nvmlDeviceGetName: GPU is lost" with any prefix.
    if (info.code != status.code() || !status.message().ends_with(fmt::format(": {}", info.text))) {
      continue;
    }
    for (const nvml::ReturnName& name : nvml::kReturnNames) {
      if (name.value == info.value) return name.name;
    }
  }
  return InfoOf(status.code()).name;
}

}  // namespace tessera::gpu
