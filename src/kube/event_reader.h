// SPDX-License-Identifier: Apache-2.0
// Parses watch events from a stream that is split at arbitrary bytes. JSON has one event per line.
// In protobuf four bytes of length precede each WatchEvent, which contains the object in its
// envelope. Included only in src/kube. Threads: one.
#pragma once

#include <cstddef>
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
  RawObject object;  // a Status if the type is kError
};

class EventReader {
 public:
  EventReader(Encoding encoding, size_t max_event) : encoding_(encoding), max_event_(max_event) {}

  void Put(std::string_view bytes);
  // The next complete event, valid until the next call; nullopt if more bytes are needed. After an
  // error the stream is unusable. INVALID_ARGUMENT: not an event; RESOURCE_EXHAUSTED: longer than
  // `max_event` bytes.
  Result<std::optional<WatchEvent>> Next();

  // Bytes of buffer memory while no data is unread.
  static constexpr size_t kMaxIdleBuffer = 64 << 10;
  size_t CapacityForTest() const { return buffer_.capacity(); }

 private:
  Result<std::optional<std::string_view>> NextLine();
  Result<std::optional<std::string_view>> NextFrame();
  Status TooLongError() const;

  const Encoding encoding_;
  const size_t max_event_;
  std::string buffer_;
  size_t begin_ = 0;    // start of the unread bytes
  size_t scanned_ = 0;  // no line ends before this position
};

// Reads the Status of a kError event in either encoding.
ServerStatus StatusOf(const WatchEvent& event);

}  // namespace tessera::kube
