// SPDX-License-Identifier: Apache-2.0
// The functions of one loaded libnvidia-ml.so.1, and how they are called. Included only in src/gpu.
#pragma once

#include <dlfcn.h>

#include <array>
#include <string>

#include "api/nvml_abi.h"
#include "src/gpu/nvml.h"
#include "src/gpu/nvml_status.h"

namespace tessera::gpu {

// The functions of one loaded library; null if the driver lacks the symbol.
class NvmlSymbols {
 public:
  explicit NvmlSymbols(void* library) : library_(library) {}
  ~NvmlSymbols() { ::dlclose(library_); }
  NvmlSymbols(const NvmlSymbols&) = delete;
  NvmlSymbols& operator=(const NvmlSymbols&) = delete;

 private:
  // An address that converts to any function.
  struct SymbolAddress {
    void* address;
    template <typename Function>
    operator Function() const {  // NOLINT(google-explicit-constructor): typed by the member
      return reinterpret_cast<Function>(address);
    }
  };
  // Drivers add a suffix to the name when a function's structs change. `older` is an earlier name
  // of the function with the same signature.
  SymbolAddress Find(const char* name, const char* older) const {
    void* symbol = ::dlsym(library_, name);
    if (symbol == nullptr && older != nullptr) symbol = ::dlsym(library_, older);
    return {symbol};
  }

  void* const library_;  // first, because the members below are looked up in it

 public:
#define NVML_CALL(call, member, function, older) \
  const nvml::fn::function member = Find(#function, older);
#include "src/gpu/nvml_calls.inc"
#undef NVML_CALL
  const nvml::fn::nvmlGpmSampleAlloc gpm_sample_alloc = Find("nvmlGpmSampleAlloc", nullptr);
  const nvml::fn::nvmlGpmSampleFree gpm_sample_free = Find("nvmlGpmSampleFree", nullptr);
};

// Calls a function; UNIMPLEMENTED if the driver lacks it.
template <typename Function, typename... Args>
Status Call(NvmlCall call, Function function, Args... args) {
  if (function == nullptr) {
    return NvmlStatus(call, static_cast<int>(nvml::Return::kFunctionNotFound));
  }
  return NvmlStatus(call, static_cast<int>(function(args...)));
}

// Calls a function that writes a number through its last argument.
template <typename Function, typename... Args>
Result<int> ReadNumber(NvmlCall call, Function function, Args... args) {
  unsigned number = 0;
  RETURN_IF_ERROR(Call(call, function, args..., &number));
  return static_cast<int>(number);
}

// Calls a function that writes a text through its last two arguments, buffer and size.
template <unsigned kSize, typename Function, typename... Args>
Result<std::string> ReadText(NvmlCall call, Function function, Args... args) {
  std::array<char, kSize> text{};
  RETURN_IF_ERROR(Call(call, function, args..., text.data(), kSize));
  return std::string(text.data());
}

inline nvml::Device Handle(NvmlDevice device) { return static_cast<nvml::Device>(device); }
inline nvml::EventSet EventHandle(NvmlEventSet set) { return static_cast<nvml::EventSet>(set); }

}  // namespace tessera::gpu
