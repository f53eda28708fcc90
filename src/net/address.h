// SPDX-License-Identifier: Apache-2.0
// Where a server listens and what a client calls, as people write it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::net {

// A socket address that is not yet looked up. Either `unix_path`, or host and port.
struct Address {
  std::string host;  // name, IPv4 or IPv6 without brackets; empty: every local address
  uint16_t port = 0;
  std::string unix_path;

  // "10.0.0.1:443", "[::1]:9400", ":9400", "unix:/run/x.sock"
  std::string ToString() const;
};

// The forms that ToString writes. INVALID_ARGUMENT quotes the text and says which forms there are.
Result<Address> ParseAddress(std::string_view text);

// http or https; the port defaults to 80 or 443.
struct Url {
  bool tls = false;
  Address address;
  std::string path;  // "" or "/base" without a slash at its end

  // For the Host field: the port is left out where it is the scheme's own.
  std::string HostField() const;
  std::string ToString() const;
};

// "https://10.0.0.1:6443/base". User info, queries and fragments are INVALID_ARGUMENT.
Result<Url> ParseUrl(std::string_view text);

// An HTTP proxy that opens tunnels (CONNECT).
struct Proxy {
  Address address;
  std::string authorization;  // value of Proxy-Authorization; "": none
  std::string setting;        // that names it, such as "$HTTPS_PROXY"; "": not known

  // For errors: "10.0.0.1:3128 ($HTTPS_PROXY)".
  std::string ToString() const;
};

}  // namespace tessera::net
