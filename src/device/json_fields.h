// SPDX-License-Identifier: Apache-2.0
// Private to this room: reads members of one JSON object of an annotation; errors carry the path to
// the member, "gpus[3].uuid: …". Unknown members are nobody's business here, so a later version may
// add some. The object must outlive the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::device {

// What indices, counts and instance ids stay below.
inline constexpr int64_t kMaxSmallNumber = 1 << 20;

// A text of at most `max_bytes` that is one JSON object; INVALID_ARGUMENT otherwise.
Result<Json> ParseAnnotation(std::string_view text, size_t max_bytes);

class JsonFields {
 public:
  // `path` is what stands before the names of members: "" or "gpus[3].".
  JsonFields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  template <typename... Args>
  Status Bad(std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    return Error(Code::kInvalidArgument, "{}{}: {}", path_, key,
                 fmt::format(format, std::forward<Args>(args)...));
  }

  bool Has(std::string_view key) const { return object_.Find(key) != nullptr; }
  // An absent member leaves `out` as it is.
  Status Text(std::string_view key, std::string* out) const;
  Status SmallNumber(std::string_view key, std::optional<int>* out) const;
  // Within 0 and max; nothing where the member is absent.
  Result<std::optional<int64_t>> Number(std::string_view key, int64_t max) const;
  // As Number; an absent member is an error.
  Result<int64_t> RequiredNumber(std::string_view key, int64_t max) const;
  // Empty where the member is absent.
  Result<const Json::Array*> Items(std::string_view key) const;
  // The member "version" must be there and be `known`.
  Status Version(int known) const;
  // A member that stands twice means two things to two readers.
  Status Once(std::string_view key) const;

 private:
  const Json& object_;
  const std::string path_;
};

}  // namespace tessera::device
