// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. The streams of one HTTP/2 connection of a server (RFC 9113). Hides
// nghttp2, which implements frames, header compression and flow control. Everything runs on the
// IoThread.
//
// Bounds: kMaxStreams streams and 2 * kMaxStreams unanswered requests at once, because the handler
// also finishes requests whose streams the peer has reset. Header and body sizes and all times are
// as in ServerLimits. kResetBurst and kResetsPerSecond limit peers that open streams only to reset
// them. A body is copied into frames of at most 16 KiB, of which kWriteBytes are queued at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "src/net/http_server.h"
#include "src/net/transport.h"

struct nghttp2_session;

namespace tessera::net {

class Http2Session : public std::enable_shared_from_this<Http2Session> {
 public:
  static constexpr uint32_t kMaxStreams = 64;
  static constexpr uint64_t kResetBurst = 200, kResetsPerSecond = 20;
  static constexpr size_t kWriteBytes = 64 << 10;
  // The interval at which the times of ServerLimits are checked.
  static constexpr Duration kTimeCheckInterval = std::chrono::seconds(1);

  struct Events {
    std::function<void(Request request, uint64_t stream)> on_request;
    std::function<void()> on_body_grew;  // a piece of a body has arrived
    std::function<void()> on_closed;     // once; the owner drops the session later
  };
  using OnGone = std::function<void()>;

  Http2Session(IoThread& io, const ServerLimits& limits, TransportPtr transport, Events events);
  ~Http2Session();

  void Start();
  // Like the functions of ServerConnection. Answer and WatchPeer concern one stream; the other
  // functions concern the connection.
  void Answer(uint64_t stream, Response response);
  void WatchPeer(uint64_t stream, OnGone on_gone);
  bool evictable() const;
  std::chrono::steady_clock::time_point waiting_since() const;
  size_t body_bytes() const;
  // Responds with 503 to the incomplete request that has the largest body.
  void RejectLargestRequest();
  void Close();

 private:
  struct Stream;
  struct Hooks;  // the callbacks of nghttp2
  using Time = std::chrono::steady_clock::time_point;

  void ReadMore();
  void Flush();
  void CheckTimes();
  void CheckStream(Stream& stream, Time now);
  void OnHeadersEnd(Stream& stream);
  void OnRequestEnd(Stream& stream);
  void OnSinkChange(int32_t id);
  void Respond(Stream& stream, Response response);
  void Reset(int32_t id, uint32_t error);
  Stream* Find(uint64_t id);

  const ServerLimits limits_;
  TransportPtr transport_;
  Events events_;
  Timer timer_;
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, std::unique_ptr<Stream>> streams_;
  // The time at which each request was passed to the handler. An entry stays until the request is
  // answered or ServerLimits::handler_timeout has passed, even if its stream is gone.
  std::map<int32_t, Time> unanswered_;
  Time last_activity_{};  // when a stream last began or ended
  bool writing_ = false;
  bool closed_ = false;
};

}  // namespace tessera::net
