// SPDX-License-Identifier: Apache-2.0
// Names of MIG profiles as used in resource names and `MigSlice::profile`: "1g.10gb", "7g.80gb",
// "1g.10gb.me". NVML writes a "+" before an attribute, which resource names may not contain. Pure;
// any thread.
#pragma once

#include <string_view>

namespace tessera::device {

bool IsMigProfile(std::string_view profile);

}  // namespace tessera::device
