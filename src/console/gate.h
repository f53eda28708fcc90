// SPDX-License-Identifier: Apache-2.0
// Checks of each request before it is handled (origin, rate, session cookie), and the security
// headers of each response. Reads no clock: callers pass the time. Threads: one.
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
  // Counts the request. False: it exceeds the limit.
  bool Allow(const std::string& client, MonotonicTime now);

 private:
  struct Bucket {
    double tokens;
    MonotonicTime refilled_at;
  };
  const double per_second_;
  const double burst_;
  std::map<std::string, Bucket> buckets_;
};

// PERMISSION_DENIED for a request that the page of another site may have caused: a foreign Origin,
// or a Sec-Fetch-Site that is not this site's. Browsers always send one of the two.
Status CheckOrigin(const net::Request& request);
// Whether the Host header names this machine's loopback. This rejects DNS rebinding: a page cannot
// forge the header.
bool IsLoopbackHost(std::string_view host);

// The name of the session's cookie. Browsers send a cookie to all ports of a host, so each
// dashboard (`suffix`) has a name of its own. Over HTTPS the name begins with "__Host-": browsers
// then accept the cookie neither from other hosts of the domain nor over plain HTTP.
std::string SessionCookieName(bool secure, std::string_view suffix);
// The value of a cookie; "" if the request has none of this name.
std::string_view CookieOf(const net::Request& request, std::string_view name);
// The token of "Authorization: Bearer …"; "" if the request has none.
std::string_view BearerOf(const net::Request& request);

// Sets the Content-Security-Policy and related headers: the page may load files from and connect to
// this server only, and must not be shown in a frame.
void AddSecurityHeaders(net::Response* response);

}  // namespace tessera::console
