// SPDX-License-Identifier: Apache-2.0
// Names of the resource Tessera as the API server has it. Included only in src/operator.
#pragma once

#include <string>

#include "api/names.h"
#include "src/kube/resources.h"

namespace tessera::operators {

inline constexpr kube::ResourceType kTesseras{names::kGroup, names::kCustomResourceApiVersion,
                                              names::kCustomResourcePlural, false};

inline std::string ApiVersionOfTessera() {
  return std::string(names::kGroup).append("/").append(names::kCustomResourceApiVersion);
}

}  // namespace tessera::operators
