// SPDX-License-Identifier: Apache-2.0
#include "src/kube/proxy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string>

#include "src/base/strings.h"
#include "src/formats/base64.h"
#include "src/net/http.h"

namespace tessera::kube {
namespace {

// The bytes of an IP address: four for IPv4, sixteen for IPv6, none if the text is not an address.
struct Ip {
  std::array<uint8_t, 16> bytes{};
  size_t size = 0;
};

Ip ParseIp(const std::string& text) {
  Ip ip;
  if (::inet_pton(AF_INET, text.c_str(), ip.bytes.data()) == 1)
    ip.size = 4;
  else if (::inet_pton(AF_INET6, text.c_str(), ip.bytes.data()) == 1)
    ip.size = 16;
  return ip;
}

bool IsLoopback(const Ip& ip) {
  if (ip.size == 4) return ip.bytes[0] == 127;
  const Ip v6 = ParseIp("::1");
  return ip.size == 16 && ip.bytes == v6.bytes;
}

bool InNetwork(const Ip& ip, std::string_view cidr) {
  const size_t slash = cidr.find('/');
  const Ip network = ParseIp(std::string(cidr.substr(0, slash)));
  const Result<int64_t> prefix = ParseInt(cidr.substr(slash + 1));
  if (network.size == 0 || network.size != ip.size || !prefix.ok()) return false;
  if (*prefix < 0 || *prefix > static_cast<int64_t>(ip.size) * 8) return false;
  for (int64_t bit = 0; bit < *prefix; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if (((network.bytes[bit / 8] ^ ip.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

bool NoProxyEntryMatches(std::string_view entry, const std::string& host, const Ip& ip,
                         uint16_t port) {
  if (entry.empty()) return false;
  if (entry == "*") return true;
  if (entry.find('/') != std::string_view::npos) return ip.size > 0 && InNetwork(ip, entry);
  const Result<net::Address> with_port = net::ParseAddress(entry);
  std::string name(entry);
  if (with_port.ok()) {
    if (with_port->port != port) return false;
    name = with_port->host;
  }
  if (ip.size > 0) {
    const Ip named = ParseIp(name);
    return named.size == ip.size && named.bytes == ip.bytes;
  }
  if (name.starts_with("*.")) name.erase(0, 1);
  if (name.starts_with('.')) return host.ends_with(name);
  return host == name || host.ends_with("." + name);
}

// Accepts underscores, as local resolvers do.
bool IsHost(const std::string& host) {
  const auto may_have = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  };
  return ParseIp(host).size > 0 || std::ranges::all_of(host, may_have);
}

// The scheme of "socks5://host"; "" if the text has none. A user name and a password may also be
// followed by "://", and must not appear in an error.
std::string_view SchemeOf(std::string_view text) {
  const auto may_have = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  };
  const std::string_view scheme = text.substr(0, text.find("://"));
  return scheme.size() < text.size() && std::ranges::all_of(scheme, may_have) ? scheme : "";
}

// Decodes a part of "user:password". The error does not quote the part.
Result<std::string> DecodeCredential(std::string_view part) {
  Result<std::string> decoded = net::PercentDecode(part);
  if (decoded.ok()) return decoded;
  return Error(Code::kInvalidArgument,
               "the user or password of the proxy has a % without two hexadecimal digits: write a "
               "% as %25");
}

const char* FirstSetVariable(const std::function<const char*(const char*)>& getenv,
                             const char* upper, const char* lower) {
  for (const char* name : {upper, lower}) {
    const char* value = getenv(name);
    if (value != nullptr && *value != '\0') return name;
  }
  return nullptr;
}

}  // namespace

Result<net::Proxy> ParseProxy(std::string_view text) {
  constexpr std::string_view kHttp = "http://";
  std::string_view rest = text;
  if (rest.starts_with(kHttp)) {
    rest.remove_prefix(kHttp.size());
  } else if (const std::string_view scheme = SchemeOf(rest); !scheme.empty()) {
    return Error(Code::kInvalidArgument,
                 "proxies with {}:// are not supported: give one with http://", scheme);
  }
  net::Proxy proxy;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = rest.substr(0, at);
    const size_t colon = user.find(':');
    ASSIGN_OR_RETURN(std::string pair, DecodeCredential(user.substr(0, colon)));
    pair += ':';
    if (colon != std::string_view::npos) {
      ASSIGN_OR_RETURN(const std::string password, DecodeCredential(user.substr(colon + 1)));
      pair += password;
    }
    proxy.authorization = "Basic " + Base64Encode(pair);
    rest.remove_prefix(at + 1);
  }
  ASSIGN_OR_RETURN(const net::Url url, net::ParseUrl(std::string(kHttp).append(rest)));
  if (!IsHost(url.address.host)) {
    return Error(Code::kInvalidArgument, "\"{}\" is not a valid proxy: want http://HOST:PORT",
                 url.address.host);
  }
  proxy.address = url.address;
  return proxy;
}

bool BypassesProxy(std::string_view no_proxy, const net::Address& server) {
  const std::string host = ToLower(server.host);
  const Ip ip = ParseIp(host);
  // As in Go's httpproxy, so that tessera uses a proxy exactly when kubectl does.
  if (host == "localhost" || IsLoopback(ip)) return true;
  for (const std::string_view entry : Split(no_proxy, ',')) {
    if (NoProxyEntryMatches(ToLower(Trim(entry)), host, ip, server.port)) return true;
  }
  return false;
}

Result<std::optional<net::Proxy>> ProxyFromEnvironment(
    const std::function<const char*(const char* name)>& getenv, const net::Url& server) {
  const char* variable = FirstSetVariable(getenv, "HTTPS_PROXY", "https_proxy");
  if (variable == nullptr || !server.tls) return std::optional<net::Proxy>();
  const char* except = FirstSetVariable(getenv, "NO_PROXY", "no_proxy");
  if (BypassesProxy(except == nullptr ? "" : getenv(except), server.address)) {
    return std::optional<net::Proxy>();
  }
  Result<net::Proxy> proxy = ParseProxy(getenv(variable));
  if (!proxy.ok()) {
    return proxy.status().Annotate(fmt::format("${} (to reach {} directly, name it in $NO_PROXY)",
                                               variable, server.ToString()));
  }
  proxy->setting = fmt::format("${}", variable);
  return std::optional<net::Proxy>(*std::move(proxy));
}

}  // namespace tessera::kube
