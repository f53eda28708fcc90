// SPDX-License-Identifier: Apache-2.0
// Names of MIG profiles as used in resource names and `MigSlice::profile`: "1g.10gb", "7g.80gb",
// "1g.10gb.me". NVML writes a "+" before an attribute, which resource names may not contain. The
// driver knows which profiles a GPU has (src/gpu). Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::device {

bool IsMigProfile(std::string_view profile);

// Converts NVML's spelling: "1g.10gb+me" is "1g.10gb.me". INVALID_ARGUMENT quotes an invalid
// profile.
Result<std::string> MigProfileFromNvml(std::string_view name);

}  // namespace tessera::device
