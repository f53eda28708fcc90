// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/nvml_library.h"

#include <dlfcn.h>

#include <atomic>
#include <utility>

#include "src/base/file.h"
#include "src/gpu/nvml_library_impl.h"
#include "src/oci/driver_root.h"

namespace tessera::gpu {
namespace {

// While a hanging call keeps a library in use, dlopen returns this library for its path, even if
// the file was replaced. So each load spells the path differently.
std::string Respell(const std::string& path) {
  static std::atomic<int> loads{0};
  std::string spelled;
  for (int i = loads++ % 64; i > 0; --i) spelled += "/.";
  return spelled + path;
}

}  // namespace

NvmlLibraryLoader::NvmlLibraryLoader(std::string driver_root)
    : driver_root_(driver_root.empty() ? "/" : std::move(driver_root)) {}

std::string NvmlLibraryLoader::FindLibrary() const {
  return oci::FindDriverLibrary(driver_root_, "libnvidia-ml").value_or("");
}

std::string NvmlLibraryLoader::Fingerprint() {
  const std::string library = FindLibrary();
  const std::string fingerprint = FileFingerprint(library);
  return fingerprint.empty() ? "" : library + ":" + fingerprint;
}

Result<std::shared_ptr<Nvml>> NvmlLibraryLoader::Load() {
  ASSIGN_OR_RETURN(const std::string path, oci::FindDriverLibrary(driver_root_, "libnvidia-ml"));
  const std::string target = Respell(path);
  void* handle = ::dlopen(target.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return Error(
        Code::kNotFound,
        "cannot load NVML: {}: install the NVIDIA driver again, or set --driver-root to the "
        "directory that has its usr/lib",
        reason != nullptr ? reason : "unknown reason");
  }
  return std::shared_ptr<Nvml>(std::make_shared<NvmlLibrary>(handle));
}

}  // namespace tessera::gpu
