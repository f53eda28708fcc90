// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tessera::scheduler {

// The project's version, from CMake.
inline constexpr std::string_view kVersion = TESSERA_VERSION;

}  // namespace tessera::scheduler
