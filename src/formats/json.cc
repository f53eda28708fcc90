// SPDX-License-Identifier: Apache-2.0
#include "src/formats/json.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "src/base/strings.h"

namespace tessera {
namespace {

template <typename T, typename Value>
auto& Get(Value& value) {
  auto* held = std::get_if<T>(&value);
  TESSERA_CHECK(held != nullptr);
  return *held;
}

Status WrongKind(std::string_view key, std::string_view wanted, const Json* found) {
  if (found == nullptr) return Error(Code::kInvalidArgument, "\"{}\" is missing", key);
  return Error(Code::kInvalidArgument, "\"{}\" must be {}, not {}", key, wanted,
               KindName(found->kind()));
}

}  // namespace

std::string_view KindName(Json::Kind kind) {
  static constexpr std::string_view kNames[] = {"null",     "a boolean", "a number",
                                                "a string", "an array",  "an object"};
  static_assert(std::size(kNames) == size_t(Json::Kind::kObject) + 1);
  return kNames[static_cast<size_t>(kind)];
}

Json Json::Bool(bool value) { return Json(Value(value)); }
Json Json::Int(int64_t value) { return NumberText(std::to_string(value)); }
Json Json::NumberText(std::string text) { return Json(Number{std::move(text)}); }
Json Json::String(std::string_view value) { return Json(std::string(value)); }
Json Json::MakeArray(Array items) { return Json(std::move(items)); }
Json Json::MakeObject(Object members) { return Json(std::move(members)); }

Json Json::Strings(const std::vector<std::string>& values) {
  Array items;
  for (const std::string& value : values) items.push_back(String(value));
  return MakeArray(std::move(items));
}

Json Json::StringObject(const StringMap& members) {
  Object object;
  for (const auto& [name, value] : members) object.emplace_back(name, String(value));
  return MakeObject(std::move(object));
}

bool Json::bool_value() const { return Get<bool>(value_); }
const std::string& Json::string_value() const { return Get<std::string>(value_); }
const std::string& Json::number_text() const { return Get<Number>(value_).text; }
const Json::Array& Json::items() const { return Get<Array>(value_); }
Json::Array& Json::items() { return Get<Array>(value_); }
const Json::Object& Json::members() const { return Get<Object>(value_); }
Json::Object& Json::members() { return Get<Object>(value_); }

Result<int64_t> Json::ToInt() const {
  if (!is_number()) return Error(Code::kInvalidArgument, "is {}, not a number", KindName(kind()));
  return ParseInt(number_text());
}

Result<double> Json::ToDouble() const {
  if (!is_number()) return Error(Code::kInvalidArgument, "is {}, not a number", KindName(kind()));
  const std::string& text = number_text();
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) {
    return Error(Code::kOutOfRange, "{} does not fit a double", text);
  }
  return value;
}

const Json* Json::Find(std::string_view key) const {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  const auto found = std::find_if(object->rbegin(), object->rend(),
                                  [&](const Member& member) { return member.first == key; });
  return found == object->rend() ? nullptr : &found->second;
}

Json* Json::Find(std::string_view key) {
  return const_cast<Json*>(static_cast<const Json*>(this)->Find(key));
}

Json& Json::Set(std::string_view key, Json value) {
  if (Json* found = Find(key)) return *found = std::move(value);
  return members().emplace_back(key, std::move(value)).second;
}

Result<Json*> Json::EnsureObject(std::string_view key) {
  Json* found = Find(key);
  if (found == nullptr || found->is_null()) found = &Set(key, MakeObject());
  if (!found->is_object()) return WrongKind(key, "an object", found);
  return found;
}

Result<Json*> Json::EnsureArray(std::string_view key) {
  Json* found = Find(key);
  if (found == nullptr || found->is_null()) found = &Set(key, MakeArray());
  if (!found->is_array()) return WrongKind(key, "an array", found);
  return found;
}

void Json::Erase(std::string_view key) {
  std::erase_if(members(), [&](const Member& member) { return member.first == key; });
}

void Json::Append(Json value) { items().push_back(std::move(value)); }

Result<std::string> Json::StringAt(std::string_view key) const {
  const Json* found = Find(key);
  if (found == nullptr || !found->is_string()) return WrongKind(key, "a string", found);
  return found->string_value();
}

Result<int64_t> Json::IntAt(std::string_view key) const {
  const Json* found = Find(key);
  if (found == nullptr || !found->is_number()) return WrongKind(key, "a number", found);
  return found->ToInt().Annotate(fmt::format("\"{}\"", key));
}

Result<bool> Json::BoolAt(std::string_view key) const {
  const Json* found = Find(key);
  if (found == nullptr || found->kind() != Kind::kBool) return WrongKind(key, "a boolean", found);
  return found->bool_value();
}

}  // namespace tessera
