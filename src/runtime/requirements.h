// SPDX-License-Identifier: Apache-2.0
// NVIDIA_REQUIRE_*: what an image needs of driver and GPU. A value is alternatives separated by
// spaces, each of conditions separated by commas that must all hold: "cuda>=12.4
// brand=tesla,driver>=470". Every variable must be satisfied, for every GPU. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"

namespace tessera::runtime {

struct GpuFacts {
  std::string uuid;
  std::string arch;   // "8.0"; empty where not known
  std::string brand;  // "nvidia"
};

struct Facts {
  std::string cuda;    // "12.4"; empty where not known
  std::string driver;  // "550.54.15"
  std::vector<GpuFacts> gpus;
};

// `requirements` are names and values of variables. INVALID_ARGUMENT for a condition that cannot be
// read; FAILED_PRECONDITION names the condition, what was found instead, and the way out.
Status CheckRequirements(const std::vector<std::pair<std::string, std::string>>& requirements,
                         const Facts& facts);

}  // namespace tessera::runtime
