// SPDX-License-Identifier: Apache-2.0
// Entry points without an answer, and the texts of the return codes.
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

Return CountAndRefuse(const char* function) {
  const Enter call(function);
  if (call.result() != Return::kSuccess) return call.result();
  call.state().CountUnimplemented(function);
  return Return::kNotSupported;
}

struct Text {
  Return result;
  const char* text;
};

constexpr Text kTexts[] = {
    {Return::kSuccess, "Success"},
    {Return::kUninitialized, "Uninitialized"},
    {Return::kInvalidArgument, "Invalid Argument"},
    {Return::kNotSupported, "Not Supported"},
    {Return::kNoPermission, "Insufficient Permissions"},
    {Return::kAlreadyInitialized, "Already Initialized"},
    {Return::kNotFound, "Not Found"},
    {Return::kInsufficientSize, "Insufficient Size"},
    {Return::kInsufficientPower, "Insufficient External Power"},
    {Return::kDriverNotLoaded, "Driver Not Loaded"},
    {Return::kTimeout, "Timeout"},
    {Return::kIrqIssue, "Interrupt Request Issue"},
    {Return::kLibraryNotFound, "NVML Shared Library Not Found"},
    {Return::kFunctionNotFound, "Function Not Found"},
    {Return::kCorruptedInforom, "Corrupted infoROM"},
    {Return::kGpuIsLost, "GPU is lost"},
    {Return::kResetRequired, "GPU requires reset"},
    {Return::kOperatingSystem, "GPU access blocked by the operating system"},
    {Return::kLibRmVersionMismatch, "Driver/library version mismatch"},
    {Return::kInUse, "In use by another client"},
    {Return::kMemory, "Insufficient Memory"},
    {Return::kNoData, "No data"},
    {Return::kVgpuEccNotSupported, "Operation not available on vGPU with ECC enabled"},
    {Return::kInsufficientResources, "Insufficient Resources"},
    {Return::kFreqNotSupported, "Frequency not supported"},
    {Return::kArgumentVersionMismatch, "Argument version mismatch"},
    {Return::kDeprecated, "Deprecated"},
    {Return::kNotReady, "Not Ready"},
    {Return::kGpuNotFound, "GPU not found"},
    {Return::kInvalidState, "Invalid state"},
    {Return::kResetTypeNotSupported, "Reset type not supported"},
    {Return::kUnknown, "Unknown Error"},
};

}  // namespace

const char* nvmlErrorString(Return result) {
  for (const Text& text : kTexts) {
    if (text.result == result) return text.text;
  }
  return "Unknown Error Code";
}

// Their arguments do not matter: on x86-64 the caller cleans up after itself.
extern "C" {
#define NVML_OTHER(name) \
  NVML_EXPORT Return name() { return CountAndRefuse(__func__); }
#include "src/sim/nvml/others.inc"
#undef NVML_OTHER
}

}  // namespace tessera::nvml
