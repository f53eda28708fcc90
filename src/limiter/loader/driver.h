// SPDX-License-Identifier: Apache-2.0
// The real driver's functions, found by name when this library is loaded. This library depends on
// the real library by an absolute path. So the dynamic linker loads the real library first, in the
// same namespace (dlmopen) and independently of LD_LIBRARY_PATH. Threads: any; nothing changes
// after loading.
#pragma once

#include "api/cuda_abi.h"

// Exports the definition of a function that replaces the driver's function.
#define LIMITER_EXPORT extern "C" __attribute__((visibility("default")))

namespace tessera::limiter {

// A function that an old driver lacks returns kNotSupported.
struct DriverFunctions {
  bool is_library_loaded;
#define LIMITER_WRAPPED(name, type) cuda::fn::type name;
#define LIMITER_CALLED(name, type) cuda::fn::type name;
#include "src/limiter/loader/functions.inc"
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED
};
extern DriverFunctions driver;

inline constexpr int kRelaxedCapture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

// Sets the relaxed capture mode of this thread during its lifetime. Without it, a call for events
// or memory in any thread fails while a stream is captured, and invalidates the capture. Another
// thread may begin a capture at any time, so the limiter sets the mode even if no stream is
// captured.
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

// The limiter's replacement for a function that the driver's cuGetProcAddress returned;
// `driver_function` itself if the limiter does not replace it.
void* ReplacementOf(void* driver_function);

}  // namespace tessera::limiter
