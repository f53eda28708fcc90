// SPDX-License-Identifier: Apache-2.0
// The body of a streamed response: its producer adds pieces while the client reads. Pieces are
// shared, so many streams send one buffer without a copy.
//
// The queue is bounded. Push adds nothing to a full queue, and `on_drained` reports when the client
// has received all queued pieces. A producer of events then sends the current state instead of the
// events that did not fit. A stream with an empty queue accepts a piece of any size, so a snapshot
// may be larger than the bound.
//
// Threads: created, used and destroyed on `runner`'s thread. The callbacks run there, and never
// after the stream is destroyed. Destroying an open stream breaks the connection, so that the
// client detects the truncated body. `io` outlives the stream.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/net/io_thread.h"

namespace tessera::net {

class StreamSink;

class BodyStream {
 public:
  using Piece = std::shared_ptr<const std::string>;
  struct Options {
    size_t queue_bytes = 1 << 20;
    // After NotifyWhenDrained, or a rejected Push: the client has received all queued pieces.
    std::function<void()> on_drained;
    // The client is gone, or the server has ended.
    std::function<void()> on_closed;
  };

  BodyStream(IoThread& io, TaskRunner& runner, Options options);
  ~BodyStream();
  BodyStream(const BodyStream&) = delete;
  BodyStream& operator=(const BodyStream&) = delete;

  // False if nothing was added: the queue is full, or the stream is closed or finished. Empty
  // pieces are ignored.
  bool Push(Piece piece);
  // Calls `on_drained` once, when the client has received all queued pieces, so that a producer can
  // make the next piece only then. REQUIRES: at least one piece is queued.
  void NotifyWhenDrained() { notify_when_drained_ = true; }
  // Ends the body after the queued pieces.
  void Finish();
  // Ends the connection without the queued pieces.
  void Close();

  bool closed() const { return closed_; }
  size_t queued_bytes() const { return queued_bytes_; }

  // For Response::stream.
  const std::shared_ptr<StreamSink>& sink() const { return sink_; }

 private:
  void OnWritten(size_t bytes);
  void OnClosed();

  IoThread& io_;
  const Options options_;
  std::shared_ptr<StreamSink> sink_;
  size_t queued_bytes_ = 0;
  bool notify_when_drained_ = false;
  bool closed_ = false;
  bool finished_ = false;
  WeakPtrFactory<BodyStream> weak_{this};
};

}  // namespace tessera::net
