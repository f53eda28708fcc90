// SPDX-License-Identifier: Apache-2.0
// NVML through dlopen. The library is found below the driver root by the same rules as for
// containers (oci/driver_root.h), so that both use the same file. A symbol that an old driver lacks
// makes its call UNIMPLEMENTED.
//
// Threads: any. Ownership: the library is closed with the last pointer that Load returned.
#pragma once

#include <memory>
#include <string>

#include "src/gpu/nvml.h"

namespace tessera::gpu {

class NvmlLibraryLoader final : public NvmlLoader {
 public:
  // `driver_root` as seen by this process (--driver-root-ctr-path).
  explicit NvmlLibraryLoader(std::string driver_root);

  Result<std::shared_ptr<Nvml>> Load() override;
  std::string Fingerprint() override;

  // The file that Load would open, "" without a library below the root.
  std::string FindLibrary() const;

 private:
  const std::string driver_root_;
};

}  // namespace tessera::gpu
