// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. The side of a BodyStream on the IoThread: holds pieces until the
// connection has written them. Outlives both the stream and the connection.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "src/net/body_stream.h"

namespace tessera::net {

class StreamSink {
 public:
  StreamSink(std::function<void(size_t)> on_written, std::function<void()> on_closed)
      : on_written_(std::move(on_written)), on_closed_(std::move(on_closed)) {}

  // --- For the stream.
  void Push(BodyStream::Piece piece) {
    if (closed_) return;
    pieces_.push_back(std::move(piece));
    NotifyChange();
  }
  void Finish() {
    finished_ = true;
    NotifyChange();
  }

  // --- For the connection.
  // Calls `on_change` for new pieces, Finish and Close.
  void SetOnChange(std::function<void()> on_change) { on_change_ = std::move(on_change); }
  bool empty() const { return pieces_.empty(); }
  bool finished() const { return finished_; }
  bool closed() const { return closed_; }
  // The next bytes to write: one piece, or several short ones joined, so that a burst of events
  // takes one write instead of one each. REQUIRES: !empty().
  BodyStream::Piece Take() {
    BodyStream::Piece first = std::move(pieces_.front());
    pieces_.pop_front();
    if (!NextFits(first->size())) return first;
    std::string joined = *first;
    while (NextFits(joined.size())) {
      joined += *pieces_.front();
      pieces_.pop_front();
    }
    return std::make_shared<const std::string>(std::move(joined));
  }
  void ReportWritten(size_t bytes) { on_written_(bytes); }

  // From either side; later calls do nothing.
  void Close() {
    if (std::exchange(closed_, true)) return;
    pieces_.clear();
    on_closed_();
    NotifyChange();
    on_change_ = nullptr;
  }

 private:
  static constexpr size_t kJoinedBytes = 16 << 10;

  bool NextFits(size_t joined_bytes) const {
    return !pieces_.empty() && joined_bytes + pieces_.front()->size() <= kJoinedBytes;
  }
  void NotifyChange() {
    // The callback may replace itself.
    if (const auto on_change = on_change_) on_change();
  }

  std::function<void(size_t)> on_written_;
  std::function<void()> on_closed_;
  std::function<void()> on_change_;
  std::deque<BodyStream::Piece> pieces_;
  bool finished_ = false;
  bool closed_ = false;
};

}  // namespace tessera::net
