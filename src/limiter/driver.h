// SPDX-License-Identifier: Apache-2.0
// The real driver's functions, found by name when this library is loaded. The real library is a
// dependency of this one by its absolute path, so it is loaded already, in the same namespace
// (dlmopen), and whatever LD_LIBRARY_PATH says. Threads: any; nothing changes after loading.
#pragma once

#include "api/cuda_abi.h"

// Before the definition of a function that programs find in the place of the driver's.
#define LIMITER_EXPORT extern "C" __attribute__((visibility("default")))

namespace tessera::limiter {

// A function that this driver is too old to have answers kNotSupported.
struct Driver {
  bool found;  // the real library itself
#define LIMITER_WRAPPED(name, type) cuda::fn::type name;
#define LIMITER_CALLED(name, type) cuda::fn::type name;
#include "src/limiter/functions.inc"
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED
};
extern Driver driver;

// While a stream is captured, the driver lets no thread ask for events or memory, and ends the
// capture, unless the thread says that it knows what it does. 2: CU_STREAM_CAPTURE_MODE_RELAXED.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(bool needed = true) : needed_(needed) { Exchange(); }
  ~RelaxedCapture() { Exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void Exchange() {
    if (needed_) driver.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  const bool needed_;
  int mode_ = 2;
};

// The limiter's function in place of the driver's: for a pointer that the driver's cuGetProcAddress
// gave. Pointers to other functions come back as they are.
void* InPlaceOf(void* driver_function);

}  // namespace tessera::limiter
