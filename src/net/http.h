// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 requests and responses as values. Pure; any thread, except for ClientPresence.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera::net {

class StreamSink;

// Fields in their order; names are case-insensitive.
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;

  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}

  // The first field with this name; empty without such a field.
  std::string_view Get(std::string_view name) const;
  bool Has(std::string_view name) const;
  // Replaces all fields with this name.
  void Set(std::string_view name, std::string value);
  void Add(std::string name, std::string value);

  size_t size() const { return fields_.size(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<Field> fields_;
};

// Reports to a handler that takes long whether the client still waits for the response. A client
// that closes only its sending side counts as gone, because it cannot be distinguished from a
// client that has closed the connection. It still gets the response. Threads: the thread of the
// server's runner.
class ClientPresence {
 public:
  bool gone() const { return gone_; }
  // Calls `on_gone` once when the client is gone, or immediately if it is gone already. Replaces
  // the callback of an earlier call.
  void OnGone(std::function<void()> on_gone) {
    if (gone_) return on_gone();
    on_gone_ = std::move(on_gone);
  }
  // Called by the server when the client is gone.
  void MarkGone() {
    if (std::exchange(gone_, true)) return;
    if (on_gone_) std::exchange(on_gone_, nullptr)();
  }

 private:
  bool gone_ = false;
  std::function<void()> on_gone_;
};

struct Request {
  std::string method = "GET";
  std::string target = "/";  // path and query as on the wire, percent-encoded
  Headers headers;
  std::string body;
  // When the client's certificate expires; nullopt for a client without a certificate.
  std::optional<WallTime> certificate_expiry;
  // HttpServer sets the following members.
  std::string peer;       // IP address of the client without port: "10.0.0.7"; "" on a unix socket
  bool http_1_0 = false;  // the client does not understand chunked responses
  std::shared_ptr<ClientPresence> presence;

  // The target without its query, not percent-decoded.
  std::string_view path() const;
  // The decoded value of the first query parameter `name`; "" for a parameter without a value.
  std::optional<std::string> Query(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;
  // Set by a handler of HttpServer: the server announces in the response that it closes the
  // connection and then closes it, so that the client reconnects for its next request.
  bool close = false;
  // Set by a handler of HttpServer to BodyStream::sink(): the body follows in pieces, and `body` is
  // ignored.
  std::shared_ptr<StreamSink> stream;
};

// How the end of a response's body is marked on the wire.
enum class BodyFraming : uint8_t { kLength, kChunked, kUntilClose };

// Whether the method is GET or HEAD.
bool IsGetOrHead(const Request& request);

// A response of plain text, or of JSON.
Response TextResponse(int status, std::string body);
Response JsonResponse(int status, std::string body);
// A page of metrics in Prometheus' text format.
Response MetricsResponse(std::string page);

// The serialized request, with Content-Length. INVALID_ARGUMENT if a method, target or field would
// break the framing (line breaks, spaces, names that are not tokens).
Result<std::string> SerializeRequest(const Request& request);
// The response up to the body. Drops fields that would break the framing, because no caller could
// handle an error. Responses with status 204 and 304 have neither a body nor a length.
std::string SerializeResponseHead(const Response& response, bool keep_alive,
                                  BodyFraming framing = BodyFraming::kLength);

std::string_view ReasonPhrase(int status);

// Encodes everything but unreserved characters as %XX: for one path segment or query value.
std::string PercentEncode(std::string_view text);
// Does not decode '+' as a space. INVALID_ARGUMENT for a % without two hexadecimal digits.
Result<std::string> PercentDecode(std::string_view text);

}  // namespace tessera::net
