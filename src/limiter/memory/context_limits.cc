// SPDX-License-Identifier: Apache-2.0
// cuCtxSetLimit. A larger stack, heap or buffer of a context makes the driver allocate device
// memory, at this call or at a later launch. The bytes beyond the driver's defaults are charged at
// the call. The default bytes belong to the memory of the context itself (context_memory.h).
#include "src/limiter/loader/driver.h"
#include "src/limiter/process/process.h"
#include "src/limiter/tables/blocks.h"

namespace tessera::cuda {
namespace {

using limiter::Charges;
using limiter::Contexts;
using limiter::driver;
using limiter::Process;
using limiter::RoundToBlocks;

// The driver rejects larger values.
constexpr uint64_t kMaxBytes = uint64_t(1) << 48;

// Device memory for each unit of the limit's value; 0: the limit takes no device memory.
uint64_t BytesPerUnit(int limit) {
  if (limit == kLimitPrintfFifo || limit == kLimitMallocHeap) return 1;
  if (limit != kLimitStack) return 0;
  // The driver keeps a stack for every thread that can run at the same time.
  Device device = -1;
  int processors = 0, threads = 0;
  if (driver.cuCtxGetDevice(&device) != Result::kSuccess ||
      driver.cuDeviceGetAttribute(&processors, kMultiprocessorCount, device) != Result::kSuccess ||
      driver.cuDeviceGetAttribute(&threads, kMaxThreadsPerMultiprocessor, device) !=
          Result::kSuccess) {
    return 0;
  }
  return uint64_t(processors) * uint64_t(threads);
}

uint64_t SaturatedProduct(uint64_t value, uint64_t unit) {
  uint64_t bytes = 0;
  const bool too_large = __builtin_mul_overflow(value, unit, &bytes) || bytes > kMaxBytes;
  return too_large ? kMaxBytes : bytes;
}

uint64_t Excess(uint64_t bytes, uint64_t floor) { return bytes > floor ? bytes - floor : 0; }

// Context handles are aligned, so the low bits have room for a limit's number.
const void* KeyOf(Context context, int limit) {
  return reinterpret_cast<const char*>(context) + 1 + limit;
}

}  // namespace

// If two threads set the same limit of a context at once, the second thread may read the value of
// the first thread as the driver's default.
LIMITER_EXPORT Result cuCtxSetLimit(int limit, size_t value) {
  Process& process = Process::Get();
  const Contexts::Info current = process.CurrentContext();
  const uint64_t bytes_per_unit = current.gpu < 0 ? 0 : BytesPerUnit(limit);
  Context context = nullptr;
  size_t old_value = 0;
  if (bytes_per_unit == 0 || driver.cuCtxGetCurrent(&context) != Result::kSuccess ||
      driver.cuCtxGetLimit(&old_value, limit) != Result::kSuccess) {
    return driver.cuCtxSetLimit(limit, value);
  }
  Charges::ChargedObject charge;
  const bool is_charged = process.charges().Find(KeyOf(context, limit), &charge);
  const uint64_t default_bytes =
      is_charged ? charge.default_bytes : SaturatedProduct(old_value, bytes_per_unit);
  const uint64_t reserved =
      RoundToBlocks(Excess(SaturatedProduct(value, bytes_per_unit), default_bytes + charge.bytes));
  Result result = Result::kOutOfMemory;
  if (reserved == 0 || process.Reserve(current.gpu, reserved)) {
    result = driver.cuCtxSetLimit(limit, value);
    size_t new_value = value;  // the driver may round it
    (void)driver.cuCtxGetLimit(&new_value, limit);
    if (result == Result::kSuccess &&
        !process.charges().Add(KeyOf(context, limit), current,
                               Excess(SaturatedProduct(new_value, bytes_per_unit), default_bytes),
                               &process.memory_budget(), default_bytes)) {
      driver.cuCtxSetLimit(limit, old_value);
      result = Result::kOutOfMemory;
    }
    if (reserved != 0) process.memory_budget().Cancel(current.gpu, reserved);
  }
  return result;
}

}  // namespace tessera::cuda
