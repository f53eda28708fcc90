// SPDX-License-Identifier: Apache-2.0
// The base64 of RFC 4648 §4. Pure.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera {

// Ignores white space. INVALID_ARGUMENT for other invalid characters or a wrong length.
Result<std::string> Base64Decode(std::string_view text);
// With padding, without line breaks.
std::string Base64Encode(std::string_view bytes);

}  // namespace tessera
