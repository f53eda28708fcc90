// SPDX-License-Identifier: Apache-2.0
// For tests: loads the library with dlopen, as programs do.
#pragma once

#include <dlfcn.h>

#include "api/cuda_abi.h"
#include "src/base/status.h"

namespace tessera::cuda {

class CudaLibrary {
 public:
  explicit CudaLibrary(const std::string& path)
      : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) CheckFailed(__FILE__, __LINE__, dlerror());
  }

  void* handle() const { return handle_; }
  template <typename F>
  F Get(const char* name) const {
    void* symbol = dlsym(handle_, name);
    if (symbol == nullptr) CheckFailed(__FILE__, __LINE__, name);
    return reinterpret_cast<F>(symbol);
  }

 private:
  void* handle_;
};

// Usage: CU(library, cuInit)(0)
#define CU(library, name) (library).Get<::tessera::cuda::fn::name>(#name)

}  // namespace tessera::cuda
