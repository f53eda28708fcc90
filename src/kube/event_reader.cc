// SPDX-License-Identifier: Apache-2.0
#include "src/kube/event_reader.h"

#include <algorithm>

#include "src/formats/wire_reader.h"

namespace tessera::kube {
namespace {

// Bytes of a frame's big-endian length (k8s.io/apimachinery, pkg/util/framer).
constexpr size_t kFrameLengthBytes = 4;

Result<EventType> TypeOf(std::string_view text) {
  if (text == "ADDED") return EventType::kAdded;
  if (text == "MODIFIED") return EventType::kModified;
  if (text == "DELETED") return EventType::kDeleted;
  if (text == "BOOKMARK") return EventType::kBookmark;
  if (text == "ERROR") return EventType::kError;
  return Error(Code::kInvalidArgument, "unknown event type \"{}\"", text);
}

Result<WatchEvent> ReadLine(std::string_view line, size_t max_event) {
  ASSIGN_OR_RETURN(Json event, ParseJson(line, {.max_bytes = max_event}));
  Json* object = event.is_object() ? event.Find("object") : nullptr;
  const std::string type = event.is_object() ? event.StringAt("type").value_or("") : "";
  if (object == nullptr || !object->is_object()) {
    return Error(Code::kInvalidArgument, "an event of type \"{}\" has no object", type);
  }
  ASSIGN_OR_RETURN(const EventType event_type, TypeOf(type));
  return WatchEvent{event_type, RawObject(std::move(*object))};
}

Result<WatchEvent> ReadFrame(std::string_view frame) {
  std::string_view type;
  std::string_view extension;
  WireReader event(frame);
  while (event.Next()) {
    if (event.field() == 1) type = event.Bytes();
    if (event.field() == 2) extension = event.Bytes();
  }
  RETURN_IF_ERROR(event.status());
  std::string_view bytes;
  WireReader raw(extension);
  while (raw.Next()) {
    if (raw.field() == 1) bytes = raw.Bytes();
  }
  RETURN_IF_ERROR(raw.status());
  ASSIGN_OR_RETURN(const EventType event_type, TypeOf(type));
  ASSIGN_OR_RETURN(const Envelope envelope, OpenEnvelope(bytes));
  return WatchEvent{event_type, RawObject(envelope.message)};
}

}  // namespace

void EventReader::Put(std::string_view bytes) {
  buffer_.erase(0, begin_);
  scanned_ -= std::min(scanned_, begin_);
  begin_ = 0;
  buffer_.append(bytes);
}

Status EventReader::TooLongError() const {
  return Error(Code::kResourceExhausted, "an event is longer than {} bytes", max_event_);
}

Result<std::optional<std::string_view>> EventReader::NextLine() {
  while (true) {
    const size_t end = buffer_.find('\n', std::max(begin_, scanned_));
    const size_t length = std::min(end, buffer_.size()) - begin_;
    if (length > max_event_) return TooLongError();
    if (end == std::string::npos) {
      scanned_ = buffer_.size();
      return std::optional<std::string_view>();
    }
    const std::string_view line = std::string_view(buffer_).substr(begin_, length);
    begin_ = end + 1;
    if (!line.empty()) return std::optional(line);
  }
}

Result<std::optional<std::string_view>> EventReader::NextFrame() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() < kFrameLengthBytes) return std::optional<std::string_view>();
  size_t length = 0;
  for (size_t i = 0; i < kFrameLengthBytes; ++i)
    length = length << 8 | static_cast<uint8_t>(rest[i]);
  if (length > max_event_) return TooLongError();
  if (rest.size() - kFrameLengthBytes < length) return std::optional<std::string_view>();
  begin_ += kFrameLengthBytes + length;
  return std::optional(rest.substr(kFrameLengthBytes, length));
}

Result<std::optional<WatchEvent>> EventReader::Next() {
  const bool is_json = encoding_ == Encoding::kJson;
  ASSIGN_OR_RETURN(const std::optional<std::string_view> piece, is_json ? NextLine() : NextFrame());
  if (!piece) {
    // The objects of a large collection fill the buffer once; the changes that follow are small.
    if (begin_ == buffer_.size() && buffer_.capacity() > kMaxIdleBuffer) {
      std::string().swap(buffer_);  // an assignment keeps the memory
      begin_ = scanned_ = 0;
    }
    return std::optional<WatchEvent>();
  }
  ASSIGN_OR_RETURN(WatchEvent event, is_json ? ReadLine(*piece, max_event_) : ReadFrame(*piece));
  return std::optional(std::move(event));
}

ServerStatus StatusOf(const WatchEvent& event) {
  const auto status = event.object.json() != nullptr ? ReadStatus(*event.object.json())
                                                     : ReadStatusMessage(event.object.message());
  return status.value_or(ServerStatus{.message = "the watch failed without a reason"});
}

}  // namespace tessera::kube
