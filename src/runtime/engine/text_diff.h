// SPDX-License-Identifier: Apache-2.0
// A unified diff for people to read. Pure.
#pragma once

#include <optional>
#include <string>

namespace tessera::engine {

// Empty where both are the same. No text stands for a file that does not exist.
std::string UnifiedDiff(const std::string& name, const std::optional<std::string>& before,
                        const std::optional<std::string>& after);

}  // namespace tessera::engine
