// SPDX-License-Identifier: Apache-2.0
// An object as the API server sent it: JSON, or protobuf without its envelope. What lists and
// watches hand on, for objects.h to take what is wanted. Also the envelope and its Status.
//
// Threads: values. Ownership: a protobuf message is a view; who hands it out says how long it
// lives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::kube {

// Of answers. Types of custom resources come as JSON whatever is asked for.
enum class Encoding : uint8_t { kJson, kProtobuf };

inline constexpr std::string_view kJsonType = "application/json";
inline constexpr std::string_view kProtobufType = "application/vnd.kubernetes.protobuf";
// What to accept: JSON always goes, too.
std::string AcceptOf(Encoding encoding);
// By the Content-Type of an answer.
Encoding EncodingOf(std::string_view content_type);

class RawObject {
 public:
  explicit RawObject(Json json) : value_(std::move(json)) {}
  explicit RawObject(std::string_view message) : value_(message) {}

  // Null where it is protobuf.
  const Json* json() const { return std::get_if<Json>(&value_); }
  // REQUIRES: it is not JSON.
  std::string_view message() const { return std::get<std::string_view>(value_); }

  // "" where there is none.
  std::string ResourceVersion() const;
  // Whether this bookmark ends the objects that a watch with sendInitialEvents began with.
  bool EndsInitialEvents() const;

 private:
  std::variant<Json, std::string_view> value_;
};

// "k8s\0" and runtime.Unknown around a message.
struct Envelope {
  std::string_view kind;
  std::string_view message;
};
Result<Envelope> OpenEnvelope(std::string_view bytes);

// meta.k8s.io Status: why the server refused.
struct ServerStatus {
  std::string message;
  std::string reason;
  int code = 0;  // 0: not said
  std::optional<int> retry_after_seconds;
};
// Nothing where it is another kind of object.
std::optional<ServerStatus> ReadStatus(const Json& object);
std::optional<ServerStatus> ReadStatusMessage(std::string_view message);

}  // namespace tessera::kube
