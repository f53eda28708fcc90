// SPDX-License-Identifier: Apache-2.0
#include "src/components/schema.h"

#include <fmt/ranges.h>
#include <regex.h>

#include <algorithm>
#include <optional>
#include <ranges>

namespace tessera::components {
namespace {

constexpr size_t kMaxShortBytes = 60;
constexpr size_t kMaxTextBytes = 64 << 10;

std::string ShortText(const Json& value) {
  std::string text = value.Serialize();
  if (text.size() > kMaxShortBytes) text = text.substr(0, kMaxShortBytes) + "…";
  return text;
}

std::string TextOf(const Json& schema, std::string_view key) {
  return schema.StringAt(key).value_or("");
}

std::optional<int64_t> NumberOf(const Json& schema, std::string_view key) {
  const Json* number = schema.Find(key);
  if (number == nullptr) return std::nullopt;
  return number->ToInt().value();
}

// Describes the values that the schema allows.
std::string AllowedValues(const Json& schema) {
  if (std::string text = TextOf(schema, "description"); !text.empty()) return text;
  if (const Json* values = schema.Find("enum")) {
    const auto text_of = [](const Json& value) { return value.string_value(); };
    return fmt::format("{}", fmt::join(values->items() | std::views::transform(text_of), " or "));
  }
  const std::string type = TextOf(schema, "type");
  const auto minimum = NumberOf(schema, "minimum");
  const auto maximum = NumberOf(schema, "maximum");
  if (type == "integer") {
    std::string text = "a whole number";
    if (minimum) text += fmt::format(" from {}", *minimum);
    if (maximum) text += fmt::format(" to {}", *maximum);
    return text;
  }
  if (type == "string")
    return NumberOf(schema, "minLength") ? "a text that is not empty" : "a text";
  if (type == "boolean") return "true or false";
  if (type == "array") return "a list";
  return "an object";
}

bool HasOneType(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.kind() == Json::Kind::kBool;
  if (type == "integer") return value.is_number() && value.ToInt().ok();
  return type == "number" && value.is_number();
}

bool HasType(const Json& value, const Json* type) {
  if (type == nullptr) return true;
  if (!type->is_array()) return HasOneType(value, type->string_value());
  return std::ranges::any_of(
      type->items(), [&](const Json& name) { return HasOneType(value, name.string_value()); });
}

bool Matches(const std::string& text, const std::string& pattern) {
  regex_t compiled;
  TESSERA_CHECK(::regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB) == 0);
  const bool matches = ::regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  ::regfree(&compiled);
  return matches;
}

bool IsValidText(const Json& schema, const std::string& text) {
  if (text.size() > kMaxTextBytes || text.find('\0') != std::string::npos) return false;
  if (static_cast<int64_t>(text.size()) < NumberOf(schema, "minLength").value_or(0)) return false;
  if (static_cast<int64_t>(text.size()) > NumberOf(schema, "maxLength").value_or(kMaxTextBytes)) {
    return false;
  }
  const std::string pattern = TextOf(schema, "pattern");
  return pattern.empty() || Matches(text, pattern);
}

bool IsValidNumber(const Json& schema, double number) {
  const auto minimum = NumberOf(schema, "minimum"), maximum = NumberOf(schema, "maximum");
  return (!minimum || number >= static_cast<double>(*minimum)) &&
         (!maximum || number <= static_cast<double>(*maximum));
}

bool IsListed(const Json& schema, const Json& value) {
  const Json* values = schema.Find("enum");
  return values == nullptr || std::ranges::find(values->items(), value) != values->items().end();
}

// Whether the value is valid apart from its members and items.
bool IsValidWithoutMembers(const Json& schema, const Json& value) {
  if (!HasType(value, schema.Find("type")) || !IsListed(schema, value)) return false;
  if (value.is_string()) return IsValidText(schema, value.string_value());
  return !value.is_number() || IsValidNumber(schema, value.ToDouble().value_or(0));
}

std::string PathTo(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

// "scheduler.replicas"; for a value that was read from a file: "line 4: scheduler.replicas".
std::string PlaceOf(const Json& value, const std::string& path) {
  return value.line() > 0 ? fmt::format("line {}: {}", value.line(), path) : path;
}

Status Invalid(const Json& schema, const Json& value, const std::string& path) {
  return Error(Code::kInvalidArgument, "{}: invalid value {}: want {}", PlaceOf(value, path),
               ShortText(value), AllowedValues(schema));
}

Status CheckMember(const Json& schema, const std::string& key, const Json& value,
                   const std::string& path) {
  const Json* properties = schema.Find("properties");
  if (const Json* known = properties ? properties->Find(key) : nullptr) {
    return CheckAgainstSchema(*known, value, path);
  }
  const Json* rest = schema.Find("additionalProperties");
  if (rest == nullptr) return Status::Ok();
  if (rest->is_object()) return CheckAgainstSchema(*rest, value, path);
  if (rest->bool_value()) return Status::Ok();
  return Error(Code::kInvalidArgument, "{}: unknown setting: want one of {}", PlaceOf(value, path),
               fmt::join(properties->members() | std::views::keys, ", "));
}

Status CheckMembers(const Json& schema, const Json& value, const std::string& path) {
  for (const auto& [key, member] : value.members()) {
    RETURN_IF_ERROR(CheckMember(schema, key, member, PathTo(path, key)));
  }
  const Json* required = schema.Find("required");
  if (required == nullptr) return Status::Ok();
  for (const Json& name : required->items()) {
    if (value.Find(name.string_value()) != nullptr) continue;
    return Error(Code::kInvalidArgument, "{}: {} is missing", PlaceOf(value, path),
                 name.string_value());
  }
  return Status::Ok();
}

}  // namespace

Status CheckAgainstSchema(const Json& schema, const Json& value, const std::string& path) {
  if (value.is_null()) return Status::Ok();
  if (!IsValidWithoutMembers(schema, value))
    return Invalid(schema, value, path.empty() ? "settings" : path);
  if (value.is_object()) return CheckMembers(schema, value, path);
  const Json* items = schema.Find("items");
  if (!value.is_array() || items == nullptr) return Status::Ok();
  for (size_t i = 0; i < value.items().size(); ++i) {
    const Json& item = value.items()[i];
    const std::string place = fmt::format("{}[{}]", path, i);
    if (item.is_null()) return Invalid(*items, item, place);
    RETURN_IF_ERROR(CheckAgainstSchema(*items, item, place));
  }
  return Status::Ok();
}

}  // namespace tessera::components
