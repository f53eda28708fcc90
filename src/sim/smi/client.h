// SPDX-License-Identifier: Apache-2.0
// NVML for nvidia-smi: the library by dlopen, each function by dlsym at its first use, so that the
// program also runs on a driver that lacks some functions. The agent does not use this client:
// src/gpu has one that survives a hanging library.
// Threads: one. Ownership: the NvmlClient owns the library's init reference and drops it in the
// destructor.
#pragma once

#include <string>
#include <vector>

#include "api/nvml_abi.h"

namespace tessera::smi {

// The value of a function, or the reason why it failed.
template <typename T>
struct NvmlAnswer {
  nvml::Return result = nvml::Return::kUnknown;
  T value{};

  bool ok() const { return result == nvml::Return::kSuccess; }
};

class NvmlClient {
 public:
  NvmlClient() = default;
  ~NvmlClient();
  NvmlClient(const NvmlClient&) = delete;
  NvmlClient& operator=(const NvmlClient&) = delete;

  // kLibraryNotFound: no library; else the result of nvmlInit_v2.
  nvml::Return Open();

  // Calls `name`, whose type is F. kFunctionNotFound: the library lacks it.
  template <typename F, typename... Args>
  nvml::Return Call(const char* name, Args... args) const {
    auto function = reinterpret_cast<F>(Symbol(name));
    return function == nullptr ? nvml::Return::kFunctionNotFound : function(args...);
  }

  // Calls `name`, which reads and writes `value` through its last argument.
  template <typename F, typename T, typename... Args>
  NvmlAnswer<T> Read(T value, const char* name, Args... args) const {
    const nvml::Return result = Call<F>(name, args..., &value);
    return {result, value};
  }

  // The library's text for a return code.
  std::string ErrorText(nvml::Return result) const;

 private:
  void* Symbol(const char* name) const;

  void* library_ = nullptr;
  bool initialized_ = false;
};

#define NVML_CALL(client, name, ...) \
  (client).Call<::tessera::nvml::fn::name>(#name __VA_OPT__(, ) __VA_ARGS__)
// An NvmlAnswer with what the function writes into `value` through its last argument.
#define NVML_READ(client, value, name, ...) \
  (client).Read<::tessera::nvml::fn::name>(value, #name __VA_OPT__(, ) __VA_ARGS__)

// An empty struct of this version, for functions that read the version.
template <typename T>
T Versioned(unsigned version) {
  T value{};
  value.version = nvml::VersionOf<T>(version);
  return value;
}

}  // namespace tessera::smi
