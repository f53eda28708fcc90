// SPDX-License-Identifier: Apache-2.0
// Included only in src/device. Reads the members of one JSON object of an annotation. Errors
// contain the path to the member, "gpus[3].uuid: …". Ignores unknown members, so that later
// releases may add some. The object must outlive the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::device {

// Indices, counts and instance ids are below this number.
inline constexpr int64_t kMaxSmallNumber = 1 << 20;

// Parses one JSON object of at most `max_bytes`; INVALID_ARGUMENT otherwise.
Result<Json> ParseAnnotation(std::string_view text, size_t max_bytes);

class JsonFields {
 public:
  // `path` is the prefix of the members' names: "" or "gpus[3].".
  JsonFields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  template <typename... Args>
  Status Invalid(std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    return Error(Code::kInvalidArgument, "{}{}: {}", path_, key,
                 fmt::format(format, std::forward<Args>(args)...));
  }

  bool Has(std::string_view key) const { return object_.Find(key) != nullptr; }
  // An absent member leaves `out` unchanged.
  Status ReadText(std::string_view key, std::string* out) const;
  Status ReadSmallNumber(std::string_view key, std::optional<int>* out) const;
  // A number from 0 to `max`; nullopt if the member is absent.
  Result<std::optional<int64_t>> Number(std::string_view key, int64_t max) const;
  // Like Number, but an absent member is an error.
  Result<int64_t> RequiredNumber(std::string_view key, int64_t max) const;
  // Empty if the member is absent.
  Result<const Json::Array*> Items(std::string_view key) const;
  // The member "version" must exist and be `supported`.
  Status CheckVersion(int supported) const;
  // Rejects a repeated member, because some JSON parsers use the first value and others the last.
  Status CheckOnce(std::string_view key) const;

 private:
  const Json& object_;
  const std::string path_;
};

}  // namespace tessera::device
