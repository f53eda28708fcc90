// SPDX-License-Identifier: Apache-2.0
// Requests and responses of HTTP/1.1 as values. Pure; any thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera::net {

// Fields in their order; names compare without regard to case.
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;

  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}

  // Empty when there is no such field; the first one when there are several.
  std::string_view Get(std::string_view name) const;
  bool Has(std::string_view name) const;
  // Replaces all fields of this name.
  void Set(std::string_view name, std::string value);
  void Add(std::string name, std::string value);

  size_t size() const { return fields_.size(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<Field> fields_;
};

struct Request {
  std::string method = "GET";
  std::string target = "/";  // path and query as on the wire, percent-encoded
  Headers headers;
  std::string body;
  // Received over TLS with a client certificate: when that one ends.
  std::optional<WallTime> certificate_ends;

  // The target without its query, not decoded.
  std::string_view path() const;
  // The decoded value of the first query parameter `name`; "" for one without a value.
  std::optional<std::string> Query(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;
  // From a handler of HttpServer: the server closes the connection after this response, and says so
  // in it, so that the client connects anew for its next request.
  bool close = false;
};

// A response of plain text.
Response TextResponse(int status, std::string body);

// The bytes that travel. Adds Content-Length; INVALID_ARGUMENT where a method, target or field
// would break the framing (line breaks, spaces, names that are not tokens).
Result<std::string> SerializeRequest(const Request& request);
// Up to the body. Fields that would break the framing are dropped, because there is nobody to tell.
std::string SerializeResponseHead(const Response& response, bool keep_alive);

std::string_view ReasonPhrase(int status);

// Everything but unreserved characters becomes %XX: for one path segment or query value.
std::string PercentEncode(std::string_view text);
// A '+' stays a '+'. INVALID_ARGUMENT for a % without two hexadecimal digits.
Result<std::string> PercentDecode(std::string_view text);

}  // namespace tessera::net
