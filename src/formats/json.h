// SPDX-License-Identifier: Apache-2.0
// A JSON document that keeps its content when read and written: members keep their order, unknown
// and duplicate members stay, numbers keep their text (1.0 stays 1.0; 18446744073709551616 stays
// exact). The whole document is in memory, so do not use it for gigabytes of data.
//
// If a key occurs twice, Find returns the last one, like Go's decoder (runc, the kubelet). Threads:
// a value belongs to one thread; concurrent const access is safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"

namespace tessera {

class Json {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  static Json Bool(bool value);
  static Json Int(int64_t value);
  // `text` must be a JSON number.
  static Json NumberText(std::string text);
  static Json String(std::string_view value);
  static Json MakeArray(Array items = {});
  static Json MakeObject(Object members = {});
  // An array of strings.
  static Json Strings(const std::vector<std::string>& values);
  // An object whose members are strings.
  static Json StringObject(const StringMap& members);

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_number() const { return kind() == Kind::kNumber; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // REQUIRES: the value is of this kind; anything else is a broken invariant.
  bool bool_value() const;
  const std::string& string_value() const;
  const std::string& number_text() const;
  const Array& items() const;
  Array& items();
  const Object& members() const;
  Object& members();

  // INVALID_ARGUMENT if this is not a number; for ToInt, also if it is not a whole number of 64
  // bits. ToDouble returns OUT_OF_RANGE if the number does not fit into a double.
  Result<int64_t> ToInt() const;
  Result<double> ToDouble() const;

  // Objects. Find returns null if the key is missing or this is not an object.
  const Json* Find(std::string_view key) const;
  Json* Find(std::string_view key);
  // Replaces the value that Find returns, or appends a member. REQUIRES: object.
  Json& Set(std::string_view key, Json value);
  // The member as an object (array), created if it is missing or null. INVALID_ARGUMENT if it is of
  // another kind. REQUIRES: object.
  Result<Json*> EnsureObject(std::string_view key);
  Result<Json*> EnsureArray(std::string_view key);
  // Removes every member with that name.
  void Erase(std::string_view key);
  // Arrays. REQUIRES: array.
  void Append(Json value);

  // Typed access for codecs; errors name the key, the wanted kind and the actual kind.
  Result<std::string> StringAt(std::string_view key) const;
  Result<int64_t> IntAt(std::string_view key) const;
  Result<bool> BoolAt(std::string_view key) const;

  // 1-based line in the source if the reader knows it (YAML), else 0.
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

  // Without white space.
  std::string Serialize() const;
  // For users, indented by two spaces.
  std::string Pretty() const;

  // Compares values; ignores line().
  friend bool operator==(const Json& a, const Json& b) { return a.value_ == b.value_; }

 private:
  struct Number {
    std::string text;
    bool operator==(const Number&) const = default;
  };
  using Value = std::variant<std::monostate, bool, Number, std::string, Array, Object>;

  explicit Json(Value value) : value_(std::move(value)) {}

  Value value_;
  int line_ = 0;
};

std::string_view KindName(Json::Kind kind);

// The value at `path`, a list of member names; null if a member is missing.
template <typename Path = std::initializer_list<std::string_view>>
const Json* FindPath(const Json& json, const Path& path) {
  const Json* at = &json;
  for (const std::string_view key : path) {
    at = at->Find(key);
    if (at == nullptr) return nullptr;
  }
  return at;
}

// The text, the items or the members of the value at `path`; empty if a member is missing or of
// another kind. The references stay valid as long as the document is not changed.
template <typename Path = std::initializer_list<std::string_view>>
std::string TextAt(const Json& json, const Path& path) {
  const Json* at = FindPath(json, path);
  return at != nullptr && at->is_string() ? at->string_value() : "";
}
template <typename Path = std::initializer_list<std::string_view>>
const Json::Array& ItemsAt(const Json& json, const Path& path) {
  static const Json::Array kNone;
  const Json* at = FindPath(json, path);
  return at != nullptr && at->is_array() ? at->items() : kNone;
}
template <typename Path = std::initializer_list<std::string_view>>
const Json::Object& MembersAt(const Json& json, const Path& path) {
  static const Json::Object kNone;
  const Json* at = FindPath(json, path);
  return at != nullptr && at->is_object() ? at->members() : kNone;
}

struct JsonLimits {
  size_t max_bytes = 16u << 20;
  size_t max_depth = 64;
};

// INVALID_ARGUMENT names the offset, line and cause; RESOURCE_EXHAUSTED if the text exceeds a
// limit. The whole text must be one document.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

}  // namespace tessera
