// SPDX-License-Identifier: Apache-2.0
// The driver's functions that initialize CUDA, find functions, retain primary contexts, and end
// contexts.
#include "src/limiter/loader/driver.h"
#include "src/limiter/process/process.h"

namespace tessera::cuda {
namespace {

using limiter::driver;
using limiter::Process;

}  // namespace

LIMITER_EXPORT Result cuInit(unsigned flags) {
  const Result result = Process::Get().Init();
  return result == Result::kSuccess ? driver.cuInit(flags) : result;
}

// The driver selects a function by name, version and stream mode, and the limiter returns its own
// function instead.
LIMITER_EXPORT Result cuGetProcAddress(const char* symbol, void** function, int version,
                                       uint64_t flags) {
  const Result result = driver.cuGetProcAddress(symbol, function, version, flags);
  if (result == Result::kSuccess && function != nullptr)
    *function = limiter::ReplacementOf(*function);
  return result;
}

LIMITER_EXPORT Result cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                          uint64_t flags, int* status) {
  const Result result = driver.cuGetProcAddress_v2(symbol, function, version, flags, status);
  if (result == Result::kSuccess && function != nullptr)
    *function = limiter::ReplacementOf(*function);
  return result;
}

LIMITER_EXPORT Result cuCtxDestroy(Context context) {
  return Process::Get().DestroyContext(context, [&] { return driver.cuCtxDestroy(context); });
}

LIMITER_EXPORT Result cuCtxDestroy_v2(Context context) {
  return Process::Get().DestroyContext(context, [&] { return driver.cuCtxDestroy_v2(context); });
}

// Only the current context can be detached. The last detach destroys the context, which is then no
// longer current. kNotReady tells DestroyContext that the context still exists.
LIMITER_EXPORT Result cuCtxDetach(Context context) {
  Result result = Result::kSuccess;
  (void)Process::Get().DestroyContext(context, [&] {
    result = driver.cuCtxDetach(context);
    Context current = nullptr;
    const bool lives = driver.cuCtxGetCurrent(&current) == Result::kSuccess && current == context;
    return result == Result::kSuccess && lives ? Result::kNotReady : result;
  });
  return result;
}

LIMITER_EXPORT Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  return Process::Get().RetainPrimary(
      context, device, [&] { return driver.cuDevicePrimaryCtxRetain(context, device); });
}

LIMITER_EXPORT Result cuDevicePrimaryCtxRelease(Device device) {
  return Process::Get().ReleasePrimary(device,
                                       [&] { return driver.cuDevicePrimaryCtxRelease(device); });
}

LIMITER_EXPORT Result cuDevicePrimaryCtxRelease_v2(Device device) {
  return Process::Get().ReleasePrimary(device,
                                       [&] { return driver.cuDevicePrimaryCtxRelease_v2(device); });
}

LIMITER_EXPORT Result cuDevicePrimaryCtxReset(Device device) {
  return Process::Get().ReleasePrimary(device,
                                       [&] { return driver.cuDevicePrimaryCtxReset(device); });
}

LIMITER_EXPORT Result cuDevicePrimaryCtxReset_v2(Device device) {
  return Process::Get().ReleasePrimary(device,
                                       [&] { return driver.cuDevicePrimaryCtxReset_v2(device); });
}

}  // namespace tessera::cuda
