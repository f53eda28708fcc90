// SPDX-License-Identifier: Apache-2.0
#include "src/device/json_fields.h"

#include <algorithm>

namespace tessera::device {
namespace {

constexpr size_t kMaxDepth = 16;

}  // namespace

Result<Json> ParseAnnotation(std::string_view text, size_t max_bytes) {
  Result<Json> json = ParseJson(text, {.max_bytes = max_bytes, .max_depth = kMaxDepth});
  if (!json.ok()) return Status(Code::kInvalidArgument, json.status().message());
  if (!json->is_object()) return Error(Code::kInvalidArgument, "must be a JSON object");
  return json;
}

Status JsonFields::ReadText(std::string_view key, std::string* out) const {
  const Json* value = object_.Find(key);
  if (value == nullptr) return Status::Ok();
  if (!value->is_string()) return Invalid(key, "must be a string, not {}", KindName(value->kind()));
  *out = value->string_value();
  return Status::Ok();
}

Result<std::optional<int64_t>> JsonFields::Number(std::string_view key, int64_t max) const {
  const Json* value = object_.Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const Result<int64_t> number = value->ToInt();
  if (!number.ok()) return Invalid(key, "must be a whole number");
  if (*number < 0 || *number > max) return Invalid(key, "{} is not between 0 and {}", *number, max);
  return std::optional<int64_t>(*number);
}

Result<int64_t> JsonFields::RequiredNumber(std::string_view key, int64_t max) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> number, Number(key, max));
  if (!number) return Invalid(key, "is missing");
  return *number;
}

Status JsonFields::ReadSmallNumber(std::string_view key, std::optional<int>* out) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> number, Number(key, kMaxSmallNumber));
  if (number) *out = static_cast<int>(*number);
  return Status::Ok();
}

Result<const Json::Array*> JsonFields::Items(std::string_view key) const {
  static const Json::Array kNone;
  const Json* value = object_.Find(key);
  if (value == nullptr) return &kNone;
  if (!value->is_array()) return Invalid(key, "must be an array, not {}", KindName(value->kind()));
  return &value->items();
}

Status JsonFields::CheckVersion(int supported) const {
  ASSIGN_OR_RETURN(const int64_t version, RequiredNumber("version", kMaxSmallNumber));
  if (version != supported)
    return Invalid("version", "{} is not supported, only {}", version, supported);
  return Status::Ok();
}

Status JsonFields::CheckOnce(std::string_view key) const {
  const Json::Object& members = object_.members();
  const auto count = std::count_if(members.begin(), members.end(),
                                   [&](const Json::Member& member) { return member.first == key; });
  return count > 1 ? Invalid(key, "occurs twice") : Status::Ok();
}

}  // namespace tessera::device
