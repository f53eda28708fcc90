// SPDX-License-Identifier: Apache-2.0
// Inside the room: events out of the bytes of a watch, wherever these are cut. JSON has an event
// per line; protobuf has a length in four bytes, then WatchEvent around the object in its envelope.
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/kube/raw_object.h"

namespace tessera::kube {

enum class EventType : uint8_t { kAdded, kModified, kDeleted, kBookmark, kError };

struct WatchEvent {
  EventType type;
  RawObject object;  // a Status where the type is kError
};

class EventReader {
 public:
  EventReader(Encoding encoding, size_t max_event) : encoding_(encoding), max_event_(max_event) {}

  void Put(std::string_view bytes);
  // The next whole event, valid until Put; nothing: more bytes are needed. After an error the
  // stream is lost. INVALID_ARGUMENT: no event; RESOURCE_EXHAUSTED: longer than `max_event`.
  Result<std::optional<WatchEvent>> Next();

 private:
  Result<std::optional<std::string_view>> NextLine();
  Result<std::optional<std::string_view>> NextFrame();
  Status TooLong() const;

  const Encoding encoding_;
  const size_t max_event_;
  std::string buffer_;
  size_t begin_ = 0;    // of what is not yet given out
  size_t scanned_ = 0;  // no line ends before
};

// Of ReadStatus or ReadStatusMessage, whichever fits.
ServerStatus StatusOf(const WatchEvent& event);

}  // namespace tessera::kube
