// SPDX-License-Identifier: Apache-2.0
// Unimplemented functions, and the texts of return codes.
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

Return CountAndRefuse(const char* function) {
  const NodeCall call(function);
  if (call.result() != Return::kSuccess) return call.result();
  call.state().CountUnimplemented(function);
  return Return::kNotSupported;
}

struct Text {
  Return result;
  unsigned since;  // CUDA version of the first driver with the code; 0: 11.4 or older
  const char* text;
};

constexpr Text kTexts[] = {
    {Return::kSuccess, 0, "Success"},
    {Return::kUninitialized, 0, "Uninitialized"},
    {Return::kInvalidArgument, 0, "Invalid Argument"},
    {Return::kNotSupported, 0, "Not Supported"},
    {Return::kNoPermission, 0, "Insufficient Permissions"},
    {Return::kAlreadyInitialized, 0, "Already Initialized"},
    {Return::kNotFound, 0, "Not Found"},
    {Return::kInsufficientSize, 0, "Insufficient Size"},
    {Return::kInsufficientPower, 0, "Insufficient External Power"},
    {Return::kDriverNotLoaded, 0, "Driver Not Loaded"},
    {Return::kTimeout, 0, "Timeout"},
    {Return::kIrqIssue, 0, "Interrupt Request Issue"},
    {Return::kLibraryNotFound, 0, "NVML Shared Library Not Found"},
    {Return::kFunctionNotFound, 0, "Function Not Found"},
    {Return::kCorruptedInforom, 0, "Corrupted infoROM"},
    {Return::kGpuIsLost, 0, "GPU is lost"},
    {Return::kResetRequired, 0, "GPU requires reset"},
    {Return::kOperatingSystem, 0, "GPU access blocked by the operating system"},
    {Return::kLibRmVersionMismatch, 0, "Driver/library version mismatch"},
    {Return::kInUse, 0, "In use by another client"},
    {Return::kMemory, 0, "Insufficient Memory"},
    {Return::kNoData, 11070, "No data"},
    {Return::kVgpuEccNotSupported, 11070, "vGPU ECC not supported"},
    {Return::kInsufficientResources, 0, "Insufficient Resources"},
    {Return::kFreqNotSupported, 0, "Invalid Frequency"},
    {Return::kArgumentVersionMismatch, 11080, "Argument version mismatch"},
    {Return::kDeprecated, 12000, "Requested functionality has been deprecated"},
    {Return::kNotReady, 12020, "System is not in ready state"},
    {Return::kGpuNotFound, 12030, "No supported GPUs were found"},
    {Return::kInvalidState, 12040, "Resource not in correct state to perform requested operation"},
    {Return::kResetTypeNotSupported, 13000, "Reset type not supported"},
};

}  // namespace

const char* nvmlErrorString(Return result) {
  for (const Text& text : kTexts) {
    if (text.result == result && text.since <= CudaVersion()) return text.text;
  }
  return "Unknown Error";
}

// The functions ignore their arguments: on x86-64 and AArch64, the caller removes arguments from
// the stack.
extern "C" {
#define NVML_UNIMPLEMENTED(name) \
  NVML_EXPORT Return name() { return CountAndRefuse(__func__); }
#include "src/sim/nvml/unimplemented.inc"
#undef NVML_UNIMPLEMENTED
}

}  // namespace tessera::nvml
