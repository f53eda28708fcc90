// SPDX-License-Identifier: Apache-2.0
// The version of Tessera, set by CMake for all programs. Threads: any.
#pragma once

#include <string_view>

namespace tessera {

extern const std::string_view kTesseraVersion;  // "0.1.0"; in a release "0.1.0+3b21a8b2c1d0"

}  // namespace tessera
