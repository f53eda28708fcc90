// SPDX-License-Identifier: Apache-2.0
// Addresses of servers and URLs of clients in their text forms. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::net {

// A socket address before name lookup: either `unix_path`, or host and port.
struct Address {
  std::string host;  // name, IPv4 or IPv6 without brackets; empty: every local address
  uint16_t port = 0;
  std::string unix_path;

  // "10.0.0.1:443", "[::1]:9400", ":9400", "unix:/run/x.sock"
  std::string ToString() const;
};

// Parses the forms that ToString writes. INVALID_ARGUMENT quotes the text and lists the valid
// forms.
Result<Address> ParseAddress(std::string_view text);
// INVALID_ARGUMENT: the path of the unix socket is longer than the kernel allows.
Status CheckSocketPath(const Address& address);

// An http or https URL. The port defaults to 80 or 443.
struct Url {
  bool tls = false;
  Address address;
  std::string path;  // "" or "/base", without a trailing slash

  // For the Host field: without the port if it is the scheme's default.
  std::string HostField() const;
  std::string ToString() const;
};

// Parses "https://10.0.0.1:6443/base". INVALID_ARGUMENT for user info, queries and fragments.
Result<Url> ParseUrl(std::string_view text);

// An HTTP proxy that opens tunnels (CONNECT).
struct Proxy {
  Address address;
  std::string authorization;  // value of Proxy-Authorization; "": none
  std::string setting;        // the setting that names the proxy: "$HTTPS_PROXY"; "": unknown

  // For errors: "10.0.0.1:3128 ($HTTPS_PROXY)".
  std::string ToString() const;
};

}  // namespace tessera::net
