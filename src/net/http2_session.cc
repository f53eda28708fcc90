// SPDX-License-Identifier: Apache-2.0
#include "src/net/http2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "src/base/strings.h"
#include "src/net/stream_sink.h"

namespace tessera::net {
namespace {

std::string_view View(const uint8_t* text, size_t size) {
  return {reinterpret_cast<const char*>(text), size};
}
uint8_t* Bytes(const std::string& text) {
  return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
}

// Fields of HTTP/1.1 connections, which HTTP/2 forbids.
bool IsConnectionField(std::string_view name) {
  return name == "connection" || name == "keep-alive" || name == "transfer-encoding" ||
         name == "upgrade" || name == "proxy-connection";
}

// The maximum number of further bytes of a rejected request that are read and discarded.
constexpr size_t kMaxDiscardedBytes = 256 << 10;

bool HasBody(int status) { return status != 204 && status != 304; }

}  // namespace

struct Http2Session::Stream {
  enum class State { kReading, kHandling, kSending };

  int32_t id = 0;
  State state = State::kReading;
  Time progress_at{};  // when the state began, or when the peer last took bytes
  Request request;
  size_t header_bytes = 0;
  size_t body_bytes = 0;  // received
  bool request_ended = false;
  bool head_only = false;
  bool close = false;  // end the connection after the response
  bool response_sent = false;
  OnGone on_gone;
  std::string body;  // of the response
  size_t sent = 0;   // bytes sent of `body` or of `piece`
  std::shared_ptr<StreamSink> sink;
  BodyStream::Piece piece;
  bool waits_for_piece = false;

  // Copies the next bytes of the response; `flags` states whether they are the last.
  ssize_t Read(uint8_t* out, size_t room, uint32_t* flags) {
    progress_at = std::chrono::steady_clock::now();
    if (sink) return ReadSink(out, room, flags);
    const size_t count = std::min(room, body.size() - sent);
    std::memcpy(out, body.data() + sent, count);
    sent += count;
    if (sent == body.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(count);
  }

  ssize_t ReadSink(uint8_t* out, size_t room, uint32_t* flags) {
    if (sink->closed()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (!piece && sink->empty()) {
      if (sink->finished()) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        return 0;
      }
      waits_for_piece = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    if (!piece) {
      piece = sink->Take();
      sent = 0;
    }
    const size_t count = std::min(room, piece->size() - sent);
    std::memcpy(out, piece->data() + sent, count);
    sent += count;
    if (sent == piece->size()) sink->ReportWritten(std::exchange(piece, nullptr)->size());
    return static_cast<ssize_t>(count);
  }
};

// These callbacks must not call nghttp2, except to submit frames.
struct Http2Session::Hooks {
  static Http2Session& Of(void* data) { return *static_cast<Http2Session*>(data); }

  static int OnBeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* data) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Http2Session& self = Of(data);
    auto stream = std::make_unique<Stream>();
    stream->id = frame->hd.stream_id;
    stream->progress_at = self.last_activity_ = std::chrono::steady_clock::now();
    stream->request.target.clear();
    self.streams_[frame->hd.stream_id] = std::move(stream);
    return 0;
  }

  static int OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                      void* data) {
    Stream* stream = Of(data).Find(static_cast<uint64_t>(frame->hd.stream_id));
    if (stream == nullptr || stream->state != Stream::State::kReading ||
        frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
      return 0;
    }
    // The size of a field as RFC 9113 §6.5.2 defines it.
    stream->header_bytes += name_size + value_size + 32;
    if (stream->header_bytes > Of(data).limits_.max_header_bytes)
      return 0;  // OnHeadersEnd rejects it
    StoreField(View(name, name_size), std::string(View(value, value_size)), &stream->request);
    return 0;
  }

  static void StoreField(std::string_view name, std::string value, Request* request) {
    if (name == ":method") {
      request->method = std::move(value);
    } else if (name == ":path") {
      request->target = std::move(value);
    } else if (name == ":authority") {
      request->headers.Set("Host", std::move(value));
    } else if (name == "cookie" && request->headers.Has("cookie")) {
      // Browsers send each cookie as a field of its own (RFC 9113 §8.2.3).
      request->headers.Set("cookie", fmt::format("{}; {}", request->headers.Get("cookie"), value));
    } else if (name == "host") {
      if (!request->headers.Has("Host")) request->headers.Set("Host", std::move(value));
    } else if (!name.starts_with(':')) {
      request->headers.Add(std::string(name), std::move(value));
    }
  }

  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* data) {
    Http2Session& self = Of(data);
    Stream* stream = self.Find(static_cast<uint64_t>(frame->hd.stream_id));
    if (stream == nullptr) return 0;
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    stream->request_ended |= ends;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      self.OnHeadersEnd(*stream);
    }
    if (ends && stream->state == Stream::State::kReading) self.OnRequestEnd(*stream);
    return 0;
  }

  static int OnData(nghttp2_session*, uint8_t, int32_t id, const uint8_t* bytes, size_t size,
                    void* data) {
    Http2Session& self = Of(data);
    Stream* stream = self.Find(static_cast<uint64_t>(id));
    if (stream == nullptr) return 0;
    stream->body_bytes += size;
    if (stream->state != Stream::State::kReading) {
      // Clients may discard the response to a request that is reset while they send it.
      if (stream->body_bytes > self.limits_.max_body_bytes + kMaxDiscardedBytes) {
        self.Reset(id, NGHTTP2_NO_ERROR);
      }
      return 0;
    }
    if (stream->body_bytes > self.limits_.max_body_bytes) {
      self.Respond(*stream, TextResponse(413, "the body is too large\n"));
      return 0;
    }
    stream->request.body.append(View(bytes, size));
    self.events_.on_body_grew();
    return 0;
  }

  static int OnSent(nghttp2_session* session, const nghttp2_frame* frame, void* data) {
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const bool is_body = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (!ends || !is_body) return 0;
    Stream* stream = Of(data).Find(static_cast<uint64_t>(frame->hd.stream_id));
    if (stream == nullptr) return 0;
    stream->response_sent = true;
    if (stream->close) {
      nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE,
                            nghttp2_session_get_last_proc_stream_id(session), NGHTTP2_NO_ERROR,
                            nullptr, 0);
    }
    return 0;
  }

  static int OnStreamClose(nghttp2_session*, int32_t id, uint32_t, void* data) {
    Http2Session& self = Of(data);
    auto entry = self.streams_.extract(id);
    if (entry.empty()) return 0;
    self.last_activity_ = std::chrono::steady_clock::now();
    Stream& stream = *entry.mapped();
    if (stream.sink) stream.sink->Close();
    if (stream.on_gone && !stream.response_sent) stream.on_gone();
    return 0;
  }

  static ssize_t ReadBody(nghttp2_session*, int32_t, uint8_t* out, size_t room, uint32_t* flags,
                          nghttp2_data_source* source, void*) {
    return static_cast<Stream*>(source->ptr)->Read(out, room, flags);
  }
};

Http2Session::Http2Session(IoThread& io, const ServerLimits& limits, TransportPtr transport,
                           Events events)
    : limits_(limits), transport_(std::move(transport)), events_(std::move(events)), timer_(io) {}

Http2Session::~Http2Session() {
  if (session_ != nullptr) nghttp2_session_del(session_);
}

void Http2Session::Start() {
  nghttp2_session_callbacks* hooks = nullptr;
  nghttp2_option* options = nullptr;
  TESSERA_CHECK(nghttp2_session_callbacks_new(&hooks) == 0 && nghttp2_option_new(&options) == 0);
  nghttp2_session_callbacks_set_on_begin_headers_callback(hooks, &Hooks::OnBeginHeaders);
  nghttp2_session_callbacks_set_on_header_callback(hooks, &Hooks::OnHeader);
  nghttp2_session_callbacks_set_on_frame_recv_callback(hooks, &Hooks::OnFrame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(hooks, &Hooks::OnData);
  nghttp2_session_callbacks_set_on_frame_send_callback(hooks, &Hooks::OnSent);
  nghttp2_session_callbacks_set_on_stream_close_callback(hooks, &Hooks::OnStreamClose);
  nghttp2_option_set_stream_reset_rate_limit(options, kResetBurst, kResetsPerSecond);
  TESSERA_CHECK(nghttp2_session_server_new2(&session_, hooks, this, options) == 0);
  nghttp2_option_del(options);
  nghttp2_session_callbacks_del(hooks);
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMaxStreams},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(limits_.max_header_bytes)}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  last_activity_ = std::chrono::steady_clock::now();
  CheckTimes();
  Flush();
  ReadMore();
}

Http2Session::Stream* Http2Session::Find(uint64_t id) {
  const auto found = streams_.find(static_cast<int32_t>(id));
  return found == streams_.end() ? nullptr : found->second.get();
}

void Http2Session::ReadMore() {
  if (closed_) return;
  transport_->Read([self = shared_from_this()](const Status& status, std::string_view bytes) {
    if (self->closed_) return;
    if (!status.ok() || bytes.empty()) return self->Close();
    const ssize_t taken = nghttp2_session_mem_recv(
        self->session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    // Errors of the peer are answered with GOAWAY; other errors end the connection at once.
    if (taken < 0) return self->Close();
    self->Flush();
    self->ReadMore();
  });
}

void Http2Session::Flush() {
  if (writing_ || closed_) return;
  std::string out;
  while (out.size() < kWriteBytes) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    if (size < 0) return Close();
    if (size == 0) break;
    out.append(View(bytes, static_cast<size_t>(size)));
  }
  if (out.empty()) {
    if (!nghttp2_session_want_read(session_) && !nghttp2_session_want_write(session_)) Close();
    return;
  }
  writing_ = true;
  transport_->Write(std::move(out), [self = shared_from_this()](const Status& status) {
    self->writing_ = false;
    if (self->closed_) return;
    status.ok() ? self->Flush() : self->Close();
  });
}

void Http2Session::OnHeadersEnd(Stream& stream) {
  stream.head_only = stream.request.method == "HEAD";
  if (stream.header_bytes > limits_.max_header_bytes) {
    return Respond(stream, TextResponse(431, "the header is too large\n"));
  }
  if (!stream.request.target.starts_with('/')) {
    return Respond(stream, TextResponse(400, "the path is not valid\n"));
  }
  if (!stream.request_ended && ToLower(stream.request.headers.Get("Expect")) == "100-continue") {
    static const std::string name = ":status", value = "100";
    const nghttp2_nv field{Bytes(name), Bytes(value), name.size(), value.size(),
                           NGHTTP2_NV_FLAG_NONE};
    nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, stream.id, nullptr, &field, 1, nullptr);
  }
}

void Http2Session::OnRequestEnd(Stream& stream) {
  // The handler may still work on requests whose streams the peer has reset.
  if (unanswered_.size() >= 2 * kMaxStreams) return Reset(stream.id, NGHTTP2_REFUSED_STREAM);
  stream.state = Stream::State::kHandling;
  stream.progress_at = unanswered_[stream.id] = std::chrono::steady_clock::now();
  events_.on_request(std::move(stream.request), static_cast<uint64_t>(stream.id));
}

void Http2Session::WatchPeer(uint64_t id, OnGone on_gone) {
  if (Stream* stream = Find(id)) stream->on_gone = std::move(on_gone);
}

void Http2Session::Answer(uint64_t id, Response response) {
  unanswered_.erase(static_cast<int32_t>(id));
  Stream* stream = Find(id);
  if (closed_ || stream == nullptr || stream->state != Stream::State::kHandling) {
    if (response.stream) response.stream->Close();
    return;
  }
  Respond(*stream, std::move(response));
  Flush();
}

void Http2Session::Respond(Stream& stream, Response response) {
  stream.state = Stream::State::kSending;
  stream.progress_at = std::chrono::steady_clock::now();
  stream.request = {};
  stream.close = response.close;
  const bool with_body = HasBody(response.status);
  std::vector<std::pair<std::string, std::string>> fields{
      {":status", std::to_string(response.status)}};
  for (const auto& [name, value] : response.headers) {
    std::string lower = ToLower(name);
    if (IsConnectionField(lower) || lower == "content-length" ||
        !nghttp2_check_header_name(Bytes(lower), lower.size()) ||
        !nghttp2_check_header_value(Bytes(value), value.size())) {
      continue;
    }
    fields.emplace_back(std::move(lower), value);
  }
  if (with_body && !response.stream) {
    fields.emplace_back("content-length", std::to_string(response.body.size()));
  }
  std::vector<nghttp2_nv> values;
  for (const auto& [name, value] : fields) {
    values.push_back({Bytes(name), Bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  const bool sends_body = with_body && !stream.head_only;
  if (response.stream && !sends_body) response.stream->Close();
  if (response.stream && sends_body) {
    stream.sink = std::move(response.stream);
    stream.sink->SetOnChange([weak = weak_from_this(), id = stream.id] {
      if (const auto self = weak.lock()) self->OnSinkChange(id);
    });
  }
  stream.body = std::move(response.body);
  nghttp2_data_provider body{.source = {.ptr = &stream}, .read_callback = &Hooks::ReadBody};
  const int error = nghttp2_submit_response(session_, stream.id, values.data(), values.size(),
                                            sends_body ? &body : nullptr);
  if (error != 0) Reset(stream.id, NGHTTP2_INTERNAL_ERROR);
}

void Http2Session::OnSinkChange(int32_t id) {
  Stream* stream = Find(static_cast<uint64_t>(id));
  if (closed_ || stream == nullptr) return;
  if (!std::exchange(stream->waits_for_piece, false)) {
    // The producer may also break a stream while bytes of it are queued.
    if (stream->sink->closed()) Reset(id, NGHTTP2_INTERNAL_ERROR);
    return Flush();
  }
  stream->progress_at = std::chrono::steady_clock::now();
  nghttp2_session_resume_data(session_, id);
  Flush();
}

void Http2Session::Reset(int32_t id, uint32_t error) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, error);
}

void Http2Session::CheckTimes() {
  const Time now = std::chrono::steady_clock::now();
  if (writing_ && now - transport_->written_at() > limits_.write_timeout) return Close();
  if (streams_.empty() && now - last_activity_ > limits_.idle_timeout) return Close();
  std::erase_if(unanswered_,
                [&](const auto& entry) { return now - entry.second > limits_.handler_timeout; });
  for (const auto& [id, stream] : streams_) CheckStream(*stream, now);
  Flush();
  if (closed_) return;
  timer_.Start(kTimeCheckInterval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->CheckTimes();
  });
}

void Http2Session::CheckStream(Stream& stream, Time now) {
  // A write that makes progress shows that the peer takes bytes.
  const Duration age = now - (writing_ ? std::max(stream.progress_at, transport_->written_at())
                                       : stream.progress_at);
  switch (stream.state) {
    case Stream::State::kReading:
      if (age > limits_.request_timeout)
        Respond(stream, TextResponse(408, "the request took too long\n"));
      break;
    case Stream::State::kHandling:
      if (age > limits_.handler_timeout) Respond(stream, TextResponse(503, "no answer in time\n"));
      break;
    case Stream::State::kSending:
      // The peer does not open its flow-control window.
      if (!stream.waits_for_piece && age > limits_.write_timeout) Reset(stream.id, NGHTTP2_CANCEL);
      break;
  }
}

bool Http2Session::evictable() const {
  return std::ranges::none_of(streams_, [](const auto& entry) {
    return entry.second->state == Stream::State::kHandling || entry.second->waits_for_piece;
  });
}

std::chrono::steady_clock::time_point Http2Session::waiting_since() const {
  Time since = last_activity_;
  for (const auto& [id, stream] : streams_) since = std::min(since, stream->progress_at);
  return since;
}

size_t Http2Session::body_bytes() const {
  size_t bytes = 0;
  for (const auto& [id, stream] : streams_) {
    if (stream->state != Stream::State::kSending) bytes += stream->body_bytes;
  }
  return bytes;
}

void Http2Session::RejectLargestRequest() {
  Stream* largest = nullptr;
  for (const auto& [id, stream] : streams_) {
    if (stream->state != Stream::State::kReading) continue;
    if (largest == nullptr || stream->body_bytes > largest->body_bytes) largest = stream.get();
  }
  if (largest != nullptr)
    Respond(*largest, TextResponse(503, "too many large requests at a time\n"));
}

void Http2Session::Close() {
  if (std::exchange(closed_, true)) return;
  timer_.Stop();
  transport_->Close();
  for (const auto& [id, stream] : std::exchange(streams_, {})) {
    if (stream->sink) stream->sink->Close();
    if (stream->on_gone) stream->on_gone();
  }
  events_.on_closed();
}

}  // namespace tessera::net
