// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/client.h"

#include <dlfcn.h>

#include <cstring>

namespace tessera::smi {
namespace {

// Functions with the same parameters in libraries of older drivers.
struct OlderName {
  const char* newer;
  const char* older;
};
constexpr OlderName kOlderNames[] = {
    {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"},
    {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
    {"nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"},
};

}  // namespace

NvmlClient::~NvmlClient() {
  if (initialized_) NVML_CALL(*this, nvmlShutdown);
}

nvml::Return NvmlClient::Open() {
  // The program's RUNPATH names the folders beside it (see CMakeLists.txt). So a copy in a driver
  // root finds the library of that root. Elsewhere the dynamic loader searches.
  library_ = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library_ == nullptr) return nvml::Return::kLibraryNotFound;
  const nvml::Return result = NVML_CALL(*this, nvmlInit_v2);
  initialized_ = result == nvml::Return::kSuccess;
  return result;
}

std::string NvmlClient::ErrorText(nvml::Return result) const {
  auto text = reinterpret_cast<nvml::fn::nvmlErrorString>(Symbol("nvmlErrorString"));
  return text == nullptr ? "Unknown Error" : text(result);
}

void* NvmlClient::Symbol(const char* name) const {
  if (library_ == nullptr) return nullptr;
  void* symbol = dlsym(library_, name);
  for (const auto& [newer, older] : kOlderNames) {
    if (symbol == nullptr && std::strcmp(name, newer) == 0) symbol = dlsym(library_, older);
  }
  return symbol;
}

}  // namespace tessera::smi
