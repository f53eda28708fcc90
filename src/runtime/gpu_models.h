// SPDX-License-Identifier: Apache-2.0
// What can be said of a GPU and a driver by name alone, without asking them: asking initialises the
// GPU, which takes seconds. Pure tables; any thread.
#pragma once

#include <string>
#include <string_view>

namespace tessera::runtime {

// Compute capability of a model name as the driver prints it: "NVIDIA A100-SXM4-80GB" -> "8.0".
// Empty where the table does not know it.
std::string ArchOfModel(std::string_view model);

// As image authors write it in NVIDIA_REQUIRE_*: tesla, nvidia, quadro, quadrortx, nvidiartx,
// geforce, geforcertx, titan, titanrtx; "unknown" otherwise.
std::string BrandOfModel(std::string_view model);

// The newest CUDA that a driver of this version offers: "550.54.15" -> "12.4". Empty for drivers
// older than the table.
std::string CudaOfDriver(std::string_view version);

}  // namespace tessera::runtime
