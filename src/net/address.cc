// SPDX-License-Identifier: Apache-2.0
#include "src/net/address.h"

#include "src/base/strings.h"

namespace tessera::net {
namespace {

constexpr std::string_view kUnix = "unix:";
// sun_path holds 108 bytes including its terminating zero (unix(7)).
constexpr size_t kMaxSocketPath = 107;

std::string Bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

Result<uint16_t> ParsePort(std::string_view text) {
  ASSIGN_OR_RETURN(const int64_t port, ParseInt(text));
  if (port < 0 || port > 65535)
    return Error(Code::kInvalidArgument, "invalid port {}: want 0 to 65535", port);
  return static_cast<uint16_t>(port);
}

// Splits "[::1]:80", "host:80", "host"; leaves `port` unchanged if the text has none.
Status ParseHostPort(std::string_view text, Address* address, bool* has_port) {
  std::string_view host = text;
  std::string_view rest;
  if (text.substr(0, 1) == "[") {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return Error(Code::kInvalidArgument, "']' is missing");
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') {
      return Error(Code::kInvalidArgument, "a ':' must follow ']'");
    }
  } else if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    rest = text.substr(colon);
    if (rest.find(':', 1) != std::string_view::npos) {
      return Error(Code::kInvalidArgument, "an IPv6 address must be in brackets");
    }
  }
  *has_port = !rest.empty();
  if (*has_port) {
    ASSIGN_OR_RETURN(address->port, ParsePort(rest.substr(1)));
  }
  address->host = std::string(host);
  return Status::Ok();
}

}  // namespace

std::string Address::ToString() const {
  if (!unix_path.empty()) return fmt::format("{}{}", kUnix, unix_path);
  return fmt::format("{}:{}", Bracketed(host), port);
}

Result<Address> ParseAddress(std::string_view text) {
  Address address;
  if (text.substr(0, kUnix.size()) == kUnix) {
    address.unix_path = std::string(text.substr(kUnix.size()));
    if (address.unix_path.empty()) {
      return Error(Code::kInvalidArgument, "\"{}\": the socket path is missing", text);
    }
    RETURN_IF_ERROR(CheckSocketPath(address).Annotate(text));
    return address;
  }
  bool has_port = false;
  const Status status = ParseHostPort(text, &address, &has_port);
  if (!status.ok() || !has_port) {
    return Error(Code::kInvalidArgument,
                 "\"{}\" is not an address: write \":9400\", \"10.0.0.1:9400\", \"[::1]:9400\" or "
                 "\"unix:/run/name.sock\"{}{}",
                 text, status.ok() ? "" : ": ", status.message());
  }
  return address;
}

Status CheckSocketPath(const Address& address) {
  if (address.unix_path.size() <= kMaxSocketPath) return Status::Ok();
  return Error(Code::kInvalidArgument, "a socket path has at most {} bytes", kMaxSocketPath);
}

std::string Url::HostField() const {
  if (!address.unix_path.empty()) return "localhost";
  const uint16_t default_port = tls ? 443 : 80;
  return address.port == default_port ? Bracketed(address.host) : address.ToString();
}

std::string Url::ToString() const {
  return fmt::format("{}://{}{}", tls ? "https" : "http", HostField(), path);
}

Result<Url> ParseUrl(std::string_view text) {
  // What precedes an @ may be a password, which must not appear in an error.
  const size_t at = text.rfind('@');
  const std::string quoted =
      at == std::string_view::npos ? std::string(text) : std::string("...").append(text.substr(at));
  const auto invalid = [&](std::string_view why) {
    return Error(Code::kInvalidArgument, "\"{}\" is not an http:// or https:// URL: {}", quoted,
                 why);
  };
  Url url;
  std::string_view rest = text;
  if (rest.substr(0, 8) == "https://") {
    url.tls = true;
    rest.remove_prefix(8);
  } else if (rest.substr(0, 7) == "http://") {
    rest.remove_prefix(7);
  } else {
    return invalid("the scheme is missing or unknown");
  }
  if (rest.find_first_of("?#@ \r\n\t") != std::string_view::npos) {
    return invalid("it contains ?, #, @ or white space");
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) url.path = std::string(rest.substr(slash));
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();
  bool has_port = false;
  const Status status = ParseHostPort(rest.substr(0, slash), &url.address, &has_port);
  if (!status.ok()) return invalid(status.message());
  if (url.address.host.empty()) return invalid("it has no host");
  if (!has_port) url.address.port = url.tls ? 443 : 80;
  return url;
}

std::string Proxy::ToString() const {
  return setting.empty() ? address.ToString() : fmt::format("{} ({})", address.ToString(), setting);
}

}  // namespace tessera::net
