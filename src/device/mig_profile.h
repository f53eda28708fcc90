// SPDX-License-Identifier: Apache-2.0
// Names of MIG profiles as resource names and `MigSlice::profile` spell them: "1g.10gb", "7g.80gb",
// "1g.10gb.me". NVML writes a "+" before an attribute, which a resource name may not hold. Which
// profiles a GPU has is the driver's to say (src/gpu). Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::device {

bool IsMigProfile(std::string_view profile);

// From NVML's spelling: "1g.10gb+me" is "1g.10gb.me". INVALID_ARGUMENT quotes what is no profile.
Result<std::string> MigProfileFromNvml(std::string_view name);

}  // namespace tessera::device
