// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/client.h"

#include <dlfcn.h>

namespace tessera::smi {

Client::~Client() {
  if (initialised_) NVML_CALL(*this, nvmlShutdown);
}

nvml::Return Client::Open() {
  // The program's RUNPATH names the folders beside it (see CMakeLists.txt), so the copy in a driver
  // root finds the library of the same root; otherwise the dynamic loader's own search decides.
  library_ = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library_ == nullptr) return nvml::Return::kLibraryNotFound;
  const nvml::Return result = NVML_CALL(*this, nvmlInit_v2);
  initialised_ = result == nvml::Return::kSuccess;
  return result;
}

std::string Client::ErrorText(nvml::Return result) const {
  auto text = reinterpret_cast<nvml::fn::nvmlErrorString>(Symbol("nvmlErrorString"));
  return text == nullptr ? "Unknown Error" : text(result);
}

void* Client::Symbol(const char* name) const {
  return library_ == nullptr ? nullptr : dlsym(library_, name);
}

}  // namespace tessera::smi
