// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tessera {

// A lower-case subdomain of RFC 1123 with at most 253 bytes, as used by DNS and for the names of
// most Kubernetes objects. "a.b-1" is valid; "", "A", "a..b", "-a" and "a_b" are not.
bool IsDnsName(std::string_view text);

}  // namespace tessera
