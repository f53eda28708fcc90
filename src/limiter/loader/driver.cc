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
constexpr uint32_t kWrapped = 0
#include "src/limiter/loader/functions.inc"
    ;
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED

// Replacements by the driver's address. Open addressing, at most a quarter full.
constexpr uint32_t kPlaces = 1024;
static_assert(kWrapped * 4 <= kPlaces);
struct Replacement {
  void* of_driver;
  void* of_limiter;
};
Replacement replacements[kPlaces];

uint32_t PlaceOf(const void* address) {
  return uint32_t(reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15u >> 54);
}
static_assert(1u << (64 - 54) == kPlaces);

void Replace(void* of_driver, void* of_limiter) {
  if (of_driver == nullptr) return;
  uint32_t i = PlaceOf(of_driver);
  while (replacements[i].of_driver != nullptr) {
    // If two names have one address, the first name listed replaces both.
    if (replacements[i].of_driver == of_driver) return;
    i = (i + 1) % kPlaces;
  }
  replacements[i] = {of_driver, of_limiter};
}

// Stands for a function that an older driver lacks: programs find the limiter's function by name.
cuda::Result Missing() { return cuda::Result::kNotSupported; }

template <typename Function>
Function OrMissing(void* found) {
  return reinterpret_cast<Function>(found != nullptr ? found : reinterpret_cast<void*>(&Missing));
}

__attribute__((constructor)) void FindDriver() {
  void* library = ::dlopen(kRealCuda, RTLD_LAZY | RTLD_NOLOAD);
  driver.found = library != nullptr;
  const auto find = [library](const char* name) {
    return library != nullptr ? ::dlsym(library, name) : nullptr;
  };
#define LIMITER_WRAPPED(name, type)                           \
  Replace(find(#name), reinterpret_cast<void*>(&cuda::name)); \
  driver.name = OrMissing<cuda::fn::type>(find(#name));
#define LIMITER_CALLED(name, type) driver.name = OrMissing<cuda::fn::type>(find(#name));
#include "src/limiter/loader/functions.inc"
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED
}

}  // namespace

DriverFunctions driver;

void* ReplacementOf(void* driver_function) {
  for (uint32_t i = PlaceOf(driver_function); replacements[i].of_driver != nullptr;
       i = (i + 1) % kPlaces) {
    if (replacements[i].of_driver == driver_function) return replacements[i].of_limiter;
  }
  return driver_function;
}

}  // namespace tessera::limiter
