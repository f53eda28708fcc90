// SPDX-License-Identifier: Apache-2.0
#include "src/net/body_stream.h"

#include <utility>

#include "src/net/stream_sink.h"

namespace tessera::net {

BodyStream::BodyStream(IoThread& io, TaskRunner& runner, Options options)
    : io_(io), options_(std::move(options)) {
  sink_ = std::make_shared<StreamSink>(
      [&runner, this, weak = weak_.Get()](size_t bytes) {
        runner.Post([this, weak, bytes] {
          if (weak) OnWritten(bytes);
        });
      },
      [&runner, this, weak = weak_.Get()] {
        runner.Post([this, weak] {
          if (weak) OnClosed();
        });
      });
}

BodyStream::~BodyStream() {
  if (!finished_) Close();
}

bool BodyStream::Push(Piece piece) {
  if (closed_ || finished_) return false;
  if (piece->empty()) return true;
  if (queued_bytes_ > 0 && queued_bytes_ + piece->size() > options_.queue_bytes) {
    notify_when_drained_ = true;
    return false;
  }
  queued_bytes_ += piece->size();
  io_.Post([sink = sink_, piece = std::move(piece)]() mutable { sink->Push(std::move(piece)); });
  return true;
}

void BodyStream::Finish() {
  if (std::exchange(finished_, true)) return;
  io_.Post([sink = sink_] { sink->Finish(); });
}

void BodyStream::Close() {
  if (std::exchange(closed_, true)) return;
  io_.Post([sink = sink_] { sink->Close(); });
}

void BodyStream::OnWritten(size_t bytes) {
  queued_bytes_ -= bytes;
  if (queued_bytes_ > 0 || closed_ || !std::exchange(notify_when_drained_, false)) return;
  if (options_.on_drained) options_.on_drained();
}

void BodyStream::OnClosed() {
  if (std::exchange(closed_, true)) return;
  // The callback may destroy this object.
  if (const auto on_closed = options_.on_closed) on_closed();
}

}  // namespace tessera::net
