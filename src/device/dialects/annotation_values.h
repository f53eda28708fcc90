// SPDX-License-Identifier: Apache-2.0
// Included only in src/device. Parses plain-text annotation values. The functions return nullopt
// for a missing annotation; errors name the annotation, the value and the valid values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/device/dialects.h"

namespace tessera::device::dialects {

// Upper bound of minor numbers, container positions and similar values; a larger value is rejected.
inline constexpr int64_t kMaxIndex = 4095;

const std::string* FindAnnotation(const StringMap& annotations, std::string_view key);

template <typename... Args>
Status RejectAnnotation(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  return Error(Code::kInvalidArgument, "annotation {}: {}", key,
               fmt::format(format, std::forward<Args>(args)...));
}

// A decimal number from `min` to `max` as Go prints it, without sign and leading zeros.
Result<int64_t> ParseNumber(std::string_view key, std::string_view text, int64_t min, int64_t max);

Result<std::optional<int64_t>> NumberAt(const StringMap& annotations, std::string_view key,
                                        int64_t min, int64_t max);
// "true" or "false".
Result<std::optional<bool>> BoolAt(const StringMap& annotations, std::string_view key);

}  // namespace tessera::device::dialects
