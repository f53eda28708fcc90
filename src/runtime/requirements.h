// SPDX-License-Identifier: Apache-2.0
// NVIDIA_REQUIRE_*: an image's requirements on driver and GPU. Spaces in a value separate
// alternatives. Commas in an alternative separate conditions that must all hold: "cuda>=12.4
// brand=tesla,driver>=470". Every GPU must satisfy every variable. For a container without GPUs,
// every condition on arch or brand holds.
//
// The properties of GPUs and driver are derived from their names, because a query to the driver
// would initialize the GPU, which takes seconds. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"

namespace tessera::runtime {

struct GpuProperties {
  std::string uuid;
  std::string arch;   // "8.0"; empty if unknown
  std::string brand;  // "nvidia"; "unknown" if unknown
};

struct NodeFacts {
  std::string cuda;                 // "12.4"; empty if unknown
  std::string driver;               // "550.54.15"
  std::vector<GpuProperties> gpus;  // those that the container gets
};

// `requirements` are names and values of variables. INVALID_ARGUMENT: invalid condition.
// FAILED_PRECONDITION: a condition is not met; the message has the condition, the value found, and
// the remedy.
Status CheckRequirements(const std::vector<std::pair<std::string, std::string>>& requirements,
                         const NodeFacts& facts);

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
