// SPDX-License-Identifier: Apache-2.0
// The real driver's functions, found by name when this library is loaded. This library depends on
// the real library by its absolute path, so the linker has loaded the real library before, in the
// same namespace (dlmopen) and whatever LD_LIBRARY_PATH is. Threads: any; nothing changes after
// loading.
#pragma once

#include "api/cuda_abi.h"

// Exports the definition of a function that replaces the driver's function.
#define LIMITER_EXPORT extern "C" __attribute__((visibility("default")))

namespace tessera::limiter {

// The functions. A function that an old driver lacks returns kNotSupported.
struct DriverFunctions {
  bool found;  // the real library is loaded
#define LIMITER_WRAPPED(name, type) cuda::fn::type name;
#define LIMITER_CALLED(name, type) cuda::fn::type name;
#include "src/limiter/loader/functions.inc"
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED
};
extern DriverFunctions driver;

inline constexpr int kRelaxedCapture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

// While a stream is captured, a call for events or memory in any thread fails and ends the capture,
// unless the thread has set the relaxed mode. Another thread may begin a capture at any time, so
// the limiter sets the mode also if no stream is captured now.
class RelaxedCapture {
 public:
  RelaxedCapture() { Exchange(); }
  ~RelaxedCapture() { Exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void Exchange() { driver.cuThreadExchangeStreamCaptureMode(&mode_); }
  int mode_ = kRelaxedCapture;
};

// The limiter's function for a function that the driver's cuGetProcAddress returned, or that
// function itself if the limiter does not replace it.
void* ReplacementOf(void* driver_function);

}  // namespace tessera::limiter
