// SPDX-License-Identifier: Apache-2.0
// Checks of each request before it is handled (origin, rate, session cookie), and the security
// headers of each response. Reads no clock: callers pass the time. Threads: one.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/net/http.h"

namespace tessera::console {

// Each client may send a burst of requests, and then a limited number per second. Other clients do
// not use up the requests of a client. Bounds: kMaxClients. A further client replaces the client
// with the most requests left, so a client that has used up its burst is replaced last.
class RateLimit {
 public:
  static constexpr size_t kMaxClients = 10'000;

  // REQUIRES: per_second > 0.
  RateLimit(int per_second, int burst)
      : interval_(Duration(std::chrono::seconds(1)) / per_second), burst_(interval_ * burst) {}
  // Counts the request if the client may send it. Returns false, and counts nothing, if the request
  // exceeds the limit.
  bool Allow(const std::string& client, MonotonicTime now);

 private:
  const Duration interval_;  // in which a client gets back one request
  const Duration burst_;     // in which a client gets back its whole burst
  // When each client has its whole burst back, by client, and the same entries by time.
  std::map<std::string, MonotonicTime> full_at_;
  std::set<std::pair<MonotonicTime, std::string>> by_time_;
};

// PERMISSION_DENIED for a request that the page of another site may have caused: a foreign Origin,
// or a Sec-Fetch-Site that is not this site's. Browsers always send one of the two.
Status CheckOrigin(const net::Request& request);
// Whether the Host header names this machine's loopback. The check prevents DNS rebinding, because
// a page cannot forge the header.
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
