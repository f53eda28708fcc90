// SPDX-License-Identifier: Apache-2.0
// NVIDIA_REQUIRE_*: an image's requirements on driver and GPU. Spaces in a value separate
// alternatives; commas in an alternative separate conditions that must all hold: "cuda>=12.4
// brand=tesla,driver>=470". Every GPU must satisfy every variable. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"

namespace tessera::runtime {

struct GpuFacts {
  std::string uuid;
  std::string arch;   // "8.0"; empty if unknown
  std::string brand;  // "nvidia"
};

struct Facts {
  std::string cuda;    // "12.4"; empty if unknown
  std::string driver;  // "550.54.15"
  std::vector<GpuFacts> gpus;
};

// `requirements` are names and values of variables. INVALID_ARGUMENT: invalid condition.
// FAILED_PRECONDITION names the unmet condition, the value found, and the remedy.
Status CheckRequirements(const std::vector<std::pair<std::string, std::string>>& requirements,
                         const Facts& facts);

}  // namespace tessera::runtime
