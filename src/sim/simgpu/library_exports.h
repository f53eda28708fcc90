// SPDX-License-Identifier: Apache-2.0
// Limits the exports of a simulated library to the exports of a driver version. A build of the
// library has the functions of every version; a node gets a copy without the functions that its
// driver lacks. Files that are not ELF files stay unchanged, because tests use text files as
// placeholders for libraries. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::sim {

// Edits a copy of libcuda in place, so that it exports the functions of CUDA up to `cuda_version`
// (12040).
Status LimitCudaExports(const std::string& file, uint32_t cuda_version);

// Edits a copy of libnvidia-ml in place, for a driver version such as "535.309.01".
Status LimitNvmlExports(const std::string& file, std::string_view driver_version);

}  // namespace tessera::sim
