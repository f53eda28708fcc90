// SPDX-License-Identifier: Apache-2.0
// Checks each request before it is handled: its origin, its rate, and the headers of the response.
// Pure except for the time that callers pass; threads: one.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/net/http.h"

namespace tessera::console {

// Each client may send a burst of requests, and then a limited number per second. Bounds:
// kMaxClients; the table is emptied when it is full.
class RateLimit {
 public:
  static constexpr size_t kMaxClients = 10'000;

  RateLimit(double per_second, double burst) : per_second_(per_second), burst_(burst) {}
  bool Allow(const std::string& client, MonotonicTime now);

 private:
  struct Bucket {
    double tokens;
    MonotonicTime at;
  };
  const double per_second_;
  const double burst_;
  std::map<std::string, Bucket> buckets_;
};

// PERMISSION_DENIED for a request that the page of another site may have caused: a foreign Origin,
// or a Sec-Fetch-Site that is not this site's. Browsers always send one of the two.
Status CheckOrigin(const net::Request& request);
// Whether Host names this machine's loopback. A page that rebinds its DNS name cannot forge this
// header.
bool IsLoopbackHost(std::string_view host);

// The name of the session's cookie. Browsers send a cookie to all ports of a host, so each
// dashboard (`suffix`) has a name of its own. Over HTTPS the name has a prefix with which neither
// other hosts of the domain nor plain HTTP can set the cookie.
std::string SessionCookieName(bool secure, std::string_view suffix);
// The value of a cookie; "" without it.
std::string_view CookieOf(const net::Request& request, std::string_view name);
// The token of "Authorization: Bearer …"; "" without it.
std::string_view BearerOf(const net::Request& request);

// The policy of the page: scripts and styles only as files of this server, no other connections, no
// frames.
void AddSecurityHeaders(net::Response* response);

}  // namespace tessera::console
