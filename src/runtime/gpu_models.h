// SPDX-License-Identifier: Apache-2.0
// Facts about a GPU and a driver from their names alone: to query the driver would initialize the
// GPU, which takes seconds. Pure tables; any thread.
#pragma once

#include <string>
#include <string_view>

namespace tessera::runtime {

// Compute capability of a model name as the driver prints it: "NVIDIA A100-SXM4-80GB" -> "8.0".
// Empty if unknown.
std::string ArchOfModel(std::string_view model);

// The brand as NVIDIA_REQUIRE_* spells it: tesla, nvidia, quadro, quadrortx, nvidiartx,
// geforce, geforcertx, titan, titanrtx; "unknown" otherwise.
std::string BrandOfModel(std::string_view model);

// The newest CUDA version that a driver supports: "550.54.15" -> "12.4". Empty for drivers older
// than the table.
std::string CudaOfDriver(std::string_view version);

}  // namespace tessera::runtime
