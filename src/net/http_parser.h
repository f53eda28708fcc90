// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. Parses one HTTP/1.1 message from a byte stream, with limits. Hides
// Beast.
//
// Stricter than Beast, because ambiguous messages allow request smuggling: the header is bounded as
// a whole, a body may not have both a length and a transfer coding, and the only transfer coding is
// chunked.
//
// Errors of Put and PutEof: INVALID_ARGUMENT (not HTTP), OUT_OF_RANGE (header longer than its
// limit), RESOURCE_EXHAUSTED (body longer than its limit), UNAVAILABLE (ended too early). After an
// error the stream is unusable. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/status.h"
#include "src/net/http.h"

namespace tessera::net {

class HttpParser {
 public:
  enum class MessageKind { kRequest, kResponse, kResponseToHead };
  struct SizeLimits {
    size_t max_header_bytes = 16 << 10;
    uint64_t max_body_bytes = 1 << 20;
  };

  HttpParser(MessageKind kind, SizeLimits limits);
  ~HttpParser();

  Status Put(std::string_view bytes);
  // The peer has closed its side. OK only if this ends the message.
  Status PutEof();

  // Whether any bytes were put.
  bool started() const { return started_; }
  bool header_done() const;
  bool done() const;
  // Valid once header_done.
  bool keep_alive() const;
  // Filled once header_done; `body` stays empty.
  Request& request() { return request_; }
  Response& response() { return response_; }
  // The decoded body received since the last call.
  std::string TakeBody() { return std::exchange(body_, {}); }
  size_t body_waiting() const { return body_.size(); }
  // The bytes after the message, once done.
  std::string TakeRest() { return std::exchange(pending_, {}); }

 private:
  struct Impl;
  // Consumes as much as possible from the front of `bytes`.
  Status Feed(std::string_view* bytes);
  Status CheckFraming() const;

  std::unique_ptr<Impl> impl_;
  SizeLimits limits_;
  std::string pending_;  // bytes that Beast has not consumed
  size_t scanned_ = 0;   // part of pending_ already searched for the end of the header
  bool started_ = false;
  Request request_;
  Response response_;
  std::string body_;
};

}  // namespace tessera::net
