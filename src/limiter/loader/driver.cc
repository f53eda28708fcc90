// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/loader/driver.h"

#include <dlfcn.h>

#include "src/limiter/loader/old_symbols.h"
#include "src/limiter/loader/paths.h"

namespace tessera::cuda {

#define LIMITER_WRAPPED(name, type) extern "C" decltype(type) name;
#define LIMITER_CALLED(name, type)
#include "src/limiter/loader/functions.inc"
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED

}  // namespace tessera::cuda

namespace tessera::limiter {
namespace {

#define LIMITER_WRAPPED(name, type) +1
#define LIMITER_CALLED(name, type)
constexpr uint32_t kWrappedCount = 0
#include "src/limiter/loader/functions.inc"
    ;
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED

// The limiter's functions, by address of the driver's function. A hash table with open addressing,
// at most a quarter full.
constexpr uint32_t kBuckets = 1024;
static_assert(kWrappedCount * 4 <= kBuckets);
struct Replacement {
  void* driver_function;
  void* limiter_function;
};
Replacement replacements[kBuckets];

uint32_t BucketOf(const void* address) {
  return uint32_t(reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15u >> 54);
}
static_assert(1u << (64 - 54) == kBuckets);

void Replace(void* driver_function, void* limiter_function) {
  if (driver_function == nullptr) return;
  uint32_t i = BucketOf(driver_function);
  while (replacements[i].driver_function != nullptr) {
    // If two names have one address, the first name in functions.inc replaces both.
    if (replacements[i].driver_function == driver_function) return;
    i = (i + 1) % kBuckets;
  }
  replacements[i] = {driver_function, limiter_function};
}

// Stands for a function that an old driver lacks. A program can call it, because the limiter
// exports its replacement in any case.
cuda::Result MissingFunction() { return cuda::Result::kNotSupported; }

template <typename Function>
Function FunctionOrMissing(void* found) {
  return reinterpret_cast<Function>(found != nullptr ? found
                                                     : reinterpret_cast<void*>(&MissingFunction));
}

__attribute__((constructor)) void FindDriver() {
  void* library = ::dlopen(kRealCuda, RTLD_LAZY | RTLD_NOLOAD);
  driver.is_library_loaded = library != nullptr;
  const auto find = [library](const char* name) {
    return library != nullptr ? ::dlsym(library, name) : nullptr;
  };
#define LIMITER_WRAPPED(name, type)                           \
  Replace(find(#name), reinterpret_cast<void*>(&cuda::name)); \
  driver.name = FunctionOrMissing<cuda::fn::type>(find(#name));
#define LIMITER_CALLED(name, type) driver.name = FunctionOrMissing<cuda::fn::type>(find(#name));
#include "src/limiter/loader/functions.inc"
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED
}

}  // namespace

DriverFunctions driver;

void* ReplacementOf(void* driver_function) {
  for (uint32_t i = BucketOf(driver_function); replacements[i].driver_function != nullptr;
       i = (i + 1) % kBuckets) {
    if (replacements[i].driver_function == driver_function) return replacements[i].limiter_function;
  }
  return driver_function;
}

}  // namespace tessera::limiter
