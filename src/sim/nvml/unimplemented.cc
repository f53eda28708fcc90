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
#define NVML_ERROR(code, enumerator, name, since, text) {Return::enumerator, since, text},
#include "api/nvml_errors.inc"
#undef NVML_ERROR
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
