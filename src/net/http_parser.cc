// SPDX-License-Identifier: Apache-2.0
#include "src/net/http_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/optional/optional.hpp>

#include "src/base/strings.h"

namespace tessera::net {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

// The most memory that is reserved for a declared body length. The length is untrusted, so further
// memory is reserved only as the body arrives.
constexpr uint64_t kMaxReservedBytes = 256 << 10;

std::string_view View(string_view text) { return {text.data(), text.size()}; }

// Beast calls the member functions during parsing; they only copy.
template <bool kIsRequest>
class Collector final : public http::basic_parser<kIsRequest> {
 public:
  Collector(Request* request, Response* response, std::string* body)
      : request_(request), response_(response), body_(body) {}

 private:
  void on_request_impl(http::verb, string_view method, string_view target, int version,
                       error_code&) override {
    request_->method = View(method);
    request_->http_1_0 = version < 11;
    request_->target = View(target);
  }
  void on_response_impl(int status, string_view, int, error_code&) override {
    response_->status = status;
  }
  void on_field_impl(http::field, string_view name, string_view value, error_code&) override {
    // Ignores trailers, which follow the body.
    if (this->is_header_done()) return;
    Headers& headers = kIsRequest ? request_->headers : response_->headers;
    headers.Add(std::string(View(name)), std::string(View(value)));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>& length, error_code&) override {
    body_->reserve(std::min(length.value_or(0), kMaxReservedBytes));
  }
  size_t on_body_impl(string_view bytes, error_code&) override {
    body_->append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view bytes, error_code&) override {
    body_->append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(error_code&) override {}

  Request* request_;
  Response* response_;
  std::string* body_;
};

Status FromBeast(const error_code& error, const HttpParser::SizeLimits& limits) {
  if (error == http::error::body_limit) {
    return Error(Code::kResourceExhausted, "body is longer than {} bytes", limits.max_body_bytes);
  }
  if (error == http::error::partial_message || error == http::error::end_of_stream) {
    return Error(Code::kUnavailable, "connection closed in the middle of a message");
  }
  return Error(Code::kInvalidArgument, "not HTTP/1.1: {}", error.message());
}

}  // namespace

// One parser is set, according to the kind of message.
struct HttpParser::Impl {
  std::unique_ptr<http::basic_parser<true>> request;
  std::unique_ptr<http::basic_parser<false>> response;

  template <typename F>
  auto Visit(F f) const {
    return request ? f(*request) : f(*response);
  }
};

HttpParser::HttpParser(MessageKind kind, SizeLimits limits)
    : impl_(std::make_unique<Impl>()), limits_(limits) {
  if (kind == MessageKind::kRequest) {
    impl_->request = std::make_unique<Collector<true>>(&request_, &response_, &body_);
  } else {
    impl_->response = std::make_unique<Collector<false>>(&request_, &response_, &body_);
    impl_->response->skip(kind == MessageKind::kResponseToHead);
  }
  impl_->Visit([&](auto& parser) {
    parser.eager(true);
    parser.body_limit(limits.max_body_bytes);
    // Put passes the complete header to Beast at once, because Beast's own limit applies per call.
    parser.header_limit(static_cast<uint32_t>(limits.max_header_bytes) + 4);
  });
}

HttpParser::~HttpParser() = default;

bool HttpParser::header_done() const {
  return impl_->Visit([](const auto& parser) { return parser.is_header_done(); });
}

bool HttpParser::done() const {
  return impl_->Visit([](const auto& parser) { return parser.is_done(); });
}

bool HttpParser::keep_alive() const {
  return impl_->Visit([](const auto& parser) { return parser.keep_alive(); });
}

Status HttpParser::Put(std::string_view bytes) {
  started_ = started_ || !bytes.empty();
  // Fast path: parses most of a body in place, without buffering.
  if (pending_.empty() && header_done()) {
    RETURN_IF_ERROR(Feed(&bytes));
    pending_.assign(bytes);
    return Status::Ok();
  }
  pending_.append(bytes);
  if (!header_done()) {
    const size_t end = pending_.find("\r\n\r\n", scanned_ < 3 ? 0 : scanned_ - 3);
    scanned_ = pending_.size();
    const size_t length = end == std::string::npos ? pending_.size() : end + 4;
    if (length > limits_.max_header_bytes) {
      return Error(Code::kOutOfRange, "header is longer than {} bytes", limits_.max_header_bytes);
    }
    if (end == std::string::npos) return Status::Ok();
  }
  std::string_view rest = pending_;
  RETURN_IF_ERROR(Feed(&rest));
  pending_.erase(0, pending_.size() - rest.size());
  return Status::Ok();
}

Status HttpParser::Feed(std::string_view* bytes) {
  while (!done() && !bytes->empty()) {
    const bool in_header = !header_done();
    error_code error;
    const size_t used = impl_->Visit([&](auto& parser) {
      return parser.put(boost::asio::const_buffer(bytes->data(), bytes->size()), error);
    });
    bytes->remove_prefix(used);
    if (error && error != http::error::need_more) return FromBeast(error, limits_);
    if (in_header && header_done()) RETURN_IF_ERROR(CheckFraming());
    if (error) break;
  }
  // Only chunk extensions and trailers can remain here.
  if (!done() && bytes->size() > limits_.max_header_bytes) {
    return Error(Code::kOutOfRange, "chunk header is longer than {} bytes",
                 limits_.max_header_bytes);
  }
  return Status::Ok();
}

// A message that two parsers frame differently can smuggle a request past one of them (RFC 9112,
// 11.2), so only the coding that every parser supports is accepted.
Status HttpParser::CheckFraming() const {
  const Headers& headers = impl_->request ? request_.headers : response_.headers;
  int codings = 0;
  for (const auto& [name, value] : headers) {
    if (ToLower(name) != "transfer-encoding") continue;
    if (++codings > 1 || ToLower(value) != "chunked") {
      return Error(Code::kInvalidArgument, "transfer encoding \"{}\" is not supported", value);
    }
  }
  return Status::Ok();
}

Status HttpParser::PutEof() {
  if (!started_) return Error(Code::kUnavailable, "connection closed before a message");
  if (done()) return Status::Ok();
  if (!header_done()) {
    return Error(Code::kUnavailable, "connection closed in the middle of a header");
  }
  error_code error;
  impl_->Visit([&](auto& parser) { parser.put_eof(error); });
  return error ? FromBeast(error, limits_) : Status::Ok();
}

}  // namespace tessera::net
