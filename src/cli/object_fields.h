// SPDX-License-Identifier: Apache-2.0
// Reads fields of API objects from JSON; a missing field reads as empty. Included only in src/cli.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "src/formats/json.h"

namespace tessera::cli {

// The label with the name of the program that a pod runs.
inline constexpr std::string_view kNameLabel = "app.kubernetes.io/name";

inline int64_t NumberAt(const Json& json, std::initializer_list<std::string_view> path,
                        int64_t otherwise = 0) {
  const Json* at = FindPath(json, path);
  return at == nullptr ? otherwise : at->ToInt().value_or(otherwise);
}

inline bool IsBeingDeleted(const Json& object) {
  return !TextAt(object, {"metadata", "deletionTimestamp"}).empty();
}

inline const Json* ConditionOf(const Json& object, std::string_view type) {
  for (const Json& condition : ItemsAt(object, {"status", "conditions"})) {
    if (condition.StringAt("type").value_or("") == type) return &condition;
  }
  return nullptr;
}

inline bool IsTrue(const Json* condition) {
  return condition != nullptr && condition->StringAt("status").value_or("") == "True";
}

}  // namespace tessera::cli
