// SPDX-License-Identifier: Apache-2.0
// A unified diff for administrators. Pure.
#pragma once

#include <optional>
#include <string>

namespace tessera::engine {

// Empty if both are equal. nullopt means that the file does not exist.
std::string UnifiedDiff(const std::string& name, const std::optional<std::string>& before,
                        const std::optional<std::string>& after);

}  // namespace tessera::engine
