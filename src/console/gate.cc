// SPDX-License-Identifier: Apache-2.0
#include "src/console/gate.h"

#include <algorithm>

#include "src/base/strings.h"

namespace tessera::console {

bool RateLimit::Allow(const std::string& client, MonotonicTime now) {
  const auto known = full_at_.find(client);
  const MonotonicTime full_at =
      interval_ + (known == full_at_.end() ? now : std::max(known->second, now));
  if (full_at > now + burst_) return false;
  if (known != full_at_.end()) {
    by_time_.erase({known->second, client});
  } else if (full_at_.size() >= kMaxClients) {
    full_at_.erase(by_time_.begin()->second);
    by_time_.erase(by_time_.begin());
  }
  full_at_[client] = full_at;
  by_time_.emplace(full_at, client);
  return true;
}

Status CheckOrigin(const net::Request& request) {
  const std::string_view site = request.headers.Get("Sec-Fetch-Site");
  const std::string_view origin = request.headers.Get("Origin");
  const std::string_view host = request.headers.Get("Host");
  const size_t scheme = origin.find("://");
  const bool foreign_site = !site.empty() && site != "same-origin" && site != "none";
  const bool foreign_origin =
      !origin.empty() && (scheme == std::string_view::npos || origin.substr(scheme + 3) != host);
  if (!foreign_site && !foreign_origin) return Status::Ok();
  return Error(Code::kPermissionDenied,
               "the request comes from another site (Origin \"{}\", Sec-Fetch-Site \"{}\"): open "
               "the console itself",
               origin, site);
}

bool IsLoopbackHost(std::string_view host) {
  const size_t colon = host.rfind(':');
  const std::string_view name =
      host.ends_with(']') || colon == std::string_view::npos ? host : host.substr(0, colon);
  return name == "127.0.0.1" || name == "localhost" || name == "[::1]";
}

std::string SessionCookieName(bool secure, std::string_view suffix) {
  std::string name = secure ? "__Host-tessera_session" : "tessera_session";
  if (!suffix.empty()) name.append("_").append(suffix);
  return name;
}

std::string_view CookieOf(const net::Request& request, std::string_view name) {
  for (std::string_view pair : Split(request.headers.Get("Cookie"), ';')) {
    pair = Trim(pair);
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) {
      return pair.substr(equals + 1);
    }
  }
  return {};
}

std::string_view BearerOf(const net::Request& request) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view value = request.headers.Get("Authorization");
  if (ToLower(value.substr(0, kScheme.size())) != kScheme) return {};
  return Trim(value.substr(kScheme.size()));
}

void AddSecurityHeaders(net::Response* response) {
  net::Headers& headers = response->headers;
  headers.Set("Content-Security-Policy",
              "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
              "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
              "require-trusted-types-for 'script'");
  headers.Set("X-Content-Type-Options", "nosniff");
  headers.Set("X-Frame-Options", "DENY");
  headers.Set("Referrer-Policy", "no-referrer");
  headers.Set("Cross-Origin-Opener-Policy", "same-origin");
  headers.Set("Cross-Origin-Resource-Policy", "same-origin");
  headers.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()");
}

}  // namespace tessera::console
