// SPDX-License-Identifier: Apache-2.0
// NVML by dlopen. The library is found below the driver root as the container runtime finds it
// (oci/driver_root.h), so the two never disagree. A symbol that an old driver lacks makes its call
// UNIMPLEMENTED.
#pragma once

#include <memory>
#include <string>

#include "src/gpu/nvml.h"

namespace tessera::gpu {

class NvmlLibraryLoader final : public NvmlLoader {
 public:
  // `driver_root` as this process sees it (--driver-root-ctr-path).
  explicit NvmlLibraryLoader(std::string driver_root);

  Result<std::shared_ptr<Nvml>> Load() override;
  std::string Fingerprint() override;

  // The file that Load would open, "" if there is none below the root.
  std::string FindLibrary() const;

 private:
  const std::string driver_root_;
};

}  // namespace tessera::gpu
