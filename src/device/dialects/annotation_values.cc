// SPDX-License-Identifier: Apache-2.0
#include "src/device/dialects/annotation_values.h"

#include "src/base/strings.h"

namespace tessera::device::dialects {

const std::string* FindAnnotation(const StringMap& annotations, std::string_view key) {
  const auto found = annotations.find(key);
  return found == annotations.end() ? nullptr : &found->second;
}

Result<int64_t> ParseNumber(std::string_view key, std::string_view text, int64_t min, int64_t max) {
  const Result<int64_t> number = ParseInt(text);
  // Accepts one text for each number: not "-0" or "01".
  const bool plain = number.ok() && std::to_string(*number) == text;
  if (!plain) return RejectAnnotation(key, "\"{}\" is not a whole number", text.substr(0, 64));
  if (*number < min || *number > max) {
    return RejectAnnotation(key, "{} is not between {} and {}", *number, min, max);
  }
  return *number;
}

Result<std::optional<int64_t>> NumberAt(const StringMap& annotations, std::string_view key,
                                        int64_t min, int64_t max) {
  const std::string* text = FindAnnotation(annotations, key);
  if (text == nullptr) return std::optional<int64_t>();
  ASSIGN_OR_RETURN(const int64_t number, ParseNumber(key, *text, min, max));
  return std::optional<int64_t>(number);
}

Result<std::optional<bool>> BoolAt(const StringMap& annotations, std::string_view key) {
  const std::string* text = FindAnnotation(annotations, key);
  if (text == nullptr) return std::optional<bool>();
  if (*text == "true") return std::optional<bool>(true);
  if (*text == "false") return std::optional<bool>(false);
  return RejectAnnotation(key, "\"{}\" is neither true nor false", text->substr(0, 64));
}

}  // namespace tessera::device::dialects
