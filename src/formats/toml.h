// SPDX-License-Identifier: Apache-2.0
// TOML 1.0, read into the same Json as everything else: tables become objects, in the order of
// their keys, not of the file. Floats keep a point ("1.0"), so they never equal an integer; dates,
// times, inf and nan become strings. Not for writing: toml_patcher.h edits the text that a person
// wrote. Threads: pure.
#pragma once

#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera {

// INVALID_ARGUMENT names line, column and cause. Values know their lines.
Result<Json> ParseToml(std::string_view text);

}  // namespace tessera
