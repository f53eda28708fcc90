// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tessera {

// A subdomain of RFC 1123 in lower case, at most 253 bytes: what DNS finds, and what Kubernetes
// takes as the name of most objects. "a.b-1" is one; "", "A", "a..b", "-a" and "a_b" are not.
bool IsDnsName(std::string_view text);

}  // namespace tessera
