// SPDX-License-Identifier: Apache-2.0
// Makes the exports of a simulated library those of a driver version. One build of the library has
// the functions of every version; a node gets a copy without those that its driver does not have.
// Another file than a library stays as it is: tests of what lies where use such.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::sim {

// Edits a copy of libcuda in place: it exports the functions of CUDA up to `cuda_version` (12040).
Status LimitCudaExports(const std::string& file, uint32_t cuda_version);

// The same for libnvidia-ml, and a driver version such as "535.309.01".
Status LimitNvmlExports(const std::string& file, std::string_view driver_version);

}  // namespace tessera::sim
