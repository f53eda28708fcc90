// SPDX-License-Identifier: Apache-2.0
#include "src/kube/raw_object.h"

#include "src/base/strings.h"
#include "src/formats/wire_reader.h"

namespace tessera::kube {
namespace {

// The prefix before a runtime.Unknown message (k8s.io/apimachinery,
// pkg/runtime/serializer/protobuf).
constexpr std::string_view kMagic("k8s\0", 4);
constexpr std::string_view kInitialEventsEnd = "k8s.io/initial-events-end";

// Field numbers: k8s.io/apimachinery, pkg/apis/meta/v1/generated.proto. The metadata is the first
// field of every object and of every list.
constexpr uint32_t kMetadata = 1;
constexpr uint32_t kMetaResourceVersion = 6;
constexpr uint32_t kMetaAnnotations = 12;

// The last field with this number, because in protobuf the last one wins. Empty if it is missing or
// invalid.
std::string_view FieldOf(std::string_view message, uint32_t field) {
  WireReader reader(message);
  std::string_view found;
  while (reader.Next()) {
    if (reader.field() == field) found = reader.Bytes();
  }
  return found;
}

const Json* MetadataOf(const Json& object) {
  const Json* metadata = object.is_object() ? object.Find("metadata") : nullptr;
  return metadata != nullptr && metadata->is_object() ? metadata : nullptr;
}

std::vector<ServerStatus::FieldConflict> ConflictsIn(const Json& details) {
  std::vector<ServerStatus::FieldConflict> conflicts;
  const Json* causes = details.Find("causes");
  if (causes == nullptr || !causes->is_array()) return conflicts;
  for (const Json& cause : causes->items()) {
    if (!cause.is_object() || cause.StringAt("reason").value_or("") != "FieldManagerConflict") {
      continue;
    }
    conflicts.push_back(
        {cause.StringAt("message").value_or(""), cause.StringAt("field").value_or("")});
  }
  return conflicts;
}

}  // namespace

std::string AcceptOf(Encoding encoding) {
  if (encoding == Encoding::kJson) return std::string(kJsonType);
  return std::string(kProtobufType) + ", " + std::string(kJsonType);
}

Encoding EncodingOf(std::string_view content_type) {
  // Parameters may follow: ";stream=watch".
  const std::string_view type = Trim(content_type.substr(0, content_type.find(';')));
  return ToLower(type) == kProtobufType ? Encoding::kProtobuf : Encoding::kJson;
}

std::string RawObject::ResourceVersion() const {
  if (json() == nullptr) {
    return std::string(FieldOf(FieldOf(message(), kMetadata), kMetaResourceVersion));
  }
  const Json* metadata = MetadataOf(*json());
  return metadata == nullptr ? "" : metadata->StringAt("resourceVersion").value_or("");
}

bool RawObject::EndsInitialEvents() const {
  if (json() == nullptr) {
    WireReader metadata(FieldOf(message(), kMetadata));
    while (metadata.Next()) {
      if (metadata.field() != kMetaAnnotations) continue;
      const std::string_view entry = metadata.Bytes();
      if (FieldOf(entry, 1) == kInitialEventsEnd) return FieldOf(entry, 2) == "true";
    }
    return false;
  }
  const Json* metadata = MetadataOf(*json());
  const Json* annotations = metadata == nullptr ? nullptr : metadata->Find("annotations");
  return annotations != nullptr && annotations->is_object() &&
         annotations->StringAt(kInitialEventsEnd).value_or("") == "true";
}

Result<Envelope> OpenEnvelope(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) {
    return Error(Code::kInvalidArgument, "protobuf without the prefix of Kubernetes");
  }
  Envelope envelope;
  WireReader unknown(bytes.substr(kMagic.size()));
  while (unknown.Next()) {
    if (unknown.field() == 1) envelope.kind = FieldOf(unknown.Bytes(), 2);
    if (unknown.field() == 2) envelope.message = unknown.Bytes();
  }
  RETURN_IF_ERROR(unknown.status());
  return envelope;
}

std::optional<ServerStatus> ReadStatus(const Json& object) {
  if (!object.is_object() || object.StringAt("kind").value_or("") != "Status") return std::nullopt;
  ServerStatus status{.message = object.StringAt("message").value_or(""),
                      .reason = object.StringAt("reason").value_or(""),
                      .code = static_cast<int>(object.IntAt("code").value_or(0))};
  const Json* details = object.Find("details");
  if (details != nullptr && details->is_object()) {
    const auto seconds = details->IntAt("retryAfterSeconds");
    if (seconds.ok()) status.retry_after_seconds = static_cast<int>(*seconds);
    status.conflicts = ConflictsIn(*details);
  }
  return status;
}

std::optional<ServerStatus> ReadStatusMessage(std::string_view message) {
  ServerStatus status;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 3) status.message = reader.Bytes();
    if (reader.field() == 4) status.reason = reader.Bytes();
    if (reader.field() == 6) status.code = static_cast<int>(reader.Int());
    if (reader.field() != 5) continue;
    WireReader details(reader.Bytes());
    while (details.Next()) {
      if (details.field() == 5) status.retry_after_seconds = static_cast<int>(details.Int());
    }
  }
  if (!reader.status().ok()) return std::nullopt;
  return status;
}

}  // namespace tessera::kube
