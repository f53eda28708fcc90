// SPDX-License-Identifier: Apache-2.0
// An encoded object of the API server: JSON, or protobuf without its envelope. Lists and watches
// deliver raw objects, and objects.h decodes them. Also reads the envelope and the Status object.
//
// Threads: any number, on separate objects. Ownership: a protobuf message is a view; the function
// that returns it documents its lifetime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::kube {

// Encoding of responses. Custom resources are always JSON.
enum class Encoding : uint8_t { kJson, kProtobuf };

inline constexpr std::string_view kJsonType = "application/json";
inline constexpr std::string_view kProtobufType = "application/vnd.kubernetes.protobuf";
// The Accept header for this encoding; it always includes JSON.
std::string AcceptOf(Encoding encoding);
// The encoding of a response with this Content-Type.
Encoding EncodingOf(std::string_view content_type);

class RawObject {
 public:
  explicit RawObject(Json json) : value_(std::move(json)) {}
  explicit RawObject(std::string_view message) : value_(message) {}

  // Null if the object is protobuf.
  const Json* json() const { return std::get_if<Json>(&value_); }
  // REQUIRES: the object is protobuf.
  std::string_view message() const { return std::get<std::string_view>(value_); }

  // "" if the object has no resourceVersion.
  std::string ResourceVersion() const;
  // Whether this object is the bookmark that ends the initial objects of a watch with
  // sendInitialEvents.
  bool EndsInitialEvents() const;

 private:
  std::variant<Json, std::string_view> value_;
};

// Kubernetes' protobuf envelope: "k8s\0", then runtime.Unknown with the message.
struct Envelope {
  std::string_view kind;
  std::string_view message;
};
Result<Envelope> OpenEnvelope(std::string_view bytes);

// Status of meta.k8s.io: why the server rejected a request.
struct ServerStatus {
  std::string message;
  std::string reason;
  int code = 0;  // 0: not set
  std::optional<int> retry_after_seconds;
  // A field that another manager owns. It made the server reject an apply without force. An
  // example of a message: `conflict with "kubectl-edit" using apps/v1`.
  struct FieldConflict {
    std::string message;
    std::string field;
  };
  std::vector<FieldConflict> conflicts;
};
// nullopt for another kind of object.
std::optional<ServerStatus> ReadStatus(const Json& object);
std::optional<ServerStatus> ReadStatusMessage(std::string_view message);

}  // namespace tessera::kube
