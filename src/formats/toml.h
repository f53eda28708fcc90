// SPDX-License-Identifier: Apache-2.0
// Reads TOML 1.0 into Json: tables become objects, ordered by key instead of by position. Floats
// keep a decimal point ("1.0"), so that they never equal an integer; dates, times, inf and nan
// become strings. Does not write: PatchToml edits existing text. Threads: pure.
#pragma once

#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera {

// INVALID_ARGUMENT names line, column and cause. Each value has its line (Json::line).
Result<Json> ParseToml(std::string_view text);

}  // namespace tessera
