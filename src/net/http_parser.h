// SPDX-License-Identifier: Apache-2.0
// Inside the room: one HTTP/1.1 message out of a stream of bytes, with limits. Hides Beast.
//
// Stricter than Beast where leniency is an attack: a header is bounded as a whole, a body may not
// have both a length and a transfer coding, and the only coding is chunked.
//
// Errors of Put and PutEof: INVALID_ARGUMENT (not HTTP), OUT_OF_RANGE (header longer than its
// limit), RESOURCE_EXHAUSTED (body longer than its limit), UNAVAILABLE (ended too early). After an
// error the stream is lost. Threads: one.
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
  enum class Kind { kRequest, kResponse, kResponseToHead };
  struct Limits {
    size_t header_bytes = 16 << 10;
    uint64_t body_bytes = 1 << 20;
  };

  HttpParser(Kind kind, Limits limits);
  ~HttpParser();

  Status Put(std::string_view bytes);
  // The peer has closed its side. OK only where that is how the message ends.
  Status PutEof();

  // Whether anything was put.
  bool started() const { return started_; }
  bool header_done() const;
  bool done() const;
  // Valid when header_done.
  bool keep_alive() const;
  // Filled when header_done; `body` stays empty.
  Request& request() { return request_; }
  Response& response() { return response_; }
  // The decoded body so far, without what was taken before.
  std::string TakeBody() { return std::exchange(body_, {}); }
  size_t body_waiting() const { return body_.size(); }
  // What follows the message, when done.
  std::string TakeRest() { return std::exchange(pending_, {}); }

 private:
  struct Impl;
  // Takes what it can from the front of `bytes`.
  Status Feed(std::string_view* bytes);
  Status CheckFraming() const;

  std::unique_ptr<Impl> impl_;
  Limits limits_;
  std::string pending_;  // bytes that Beast has not consumed
  size_t scanned_ = 0;   // of pending_, for the end of the header
  bool started_ = false;
  Request request_;
  Response response_;
  std::string body_;
};

}  // namespace tessera::net
