// SPDX-License-Identifier: Apache-2.0
// The built-in profiles of profiles/*.yaml, which embed_profiles.cmake generates.
#pragma once

#include <span>
#include <string_view>

namespace tessera::sim {

struct BuiltInProfile {
  std::string_view name;
  std::string_view text;
};
extern const std::span<const BuiltInProfile> kBuiltInProfiles;

}  // namespace tessera::sim
