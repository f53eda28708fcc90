// SPDX-License-Identifier: Apache-2.0
#include "src/kube/proxy.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace tessera::kube {
namespace {

TEST(ProxyTest, ReadsCommonFormsOfAProxy) {
  EXPECT_EQ(ParseProxy("http://proxy.example:3128").value().address.ToString(),
            "proxy.example:3128");
  EXPECT_EQ(ParseProxy("proxy.example:3128/").value().address.ToString(), "proxy.example:3128");
  EXPECT_EQ(ParseProxy("http://proxy").value().address.ToString(), "proxy:80");
  EXPECT_EQ(ParseProxy("http://[fd00::1]:8080").value().address.ToString(), "[fd00::1]:8080");
  EXPECT_EQ(ParseProxy("http://proxy").value().authorization, "");
  // "u:p@w"
  EXPECT_EQ(ParseProxy("http://u:p%40w@proxy").value().authorization, "Basic dTpwQHc=");
  // "u:p://w"
  EXPECT_EQ(ParseProxy("http://u:p://w@proxy").value().authorization, "Basic dTpwOi8vdw==");
}

TEST(ProxyTest, RejectsUnsupportedProxiesWithoutQuotingThePassword) {
  for (const char* text :
       {"https://u:secret@proxy", "socks5://u:secret@proxy:1080", "http://u:secret@proxy:99999",
        "http://u:secret@", "http://u:secret@ht!tp", "http://u:secret%@proxy", "secret%zz:p@proxy",
        "http://u:secret://x@ht!tp"}) {
    const Status status = ParseProxy(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(status.message().find("secret"), std::string::npos) << status.message();
  }
  EXPECT_EQ(ParseProxy("socks5://proxy:1080").status().message(),
            "proxies with socks5:// are not supported: give one with http://");
}

TEST(ProxyTest, NoProxyMatchesHostsDomainsAddressesAndNetworks) {
  const auto bypasses = [](const char* list, const char* host, uint16_t port = 443) {
    return BypassesProxy(list, {.host = host, .port = port});
  };
  EXPECT_TRUE(bypasses("*", "api.example"));
  EXPECT_TRUE(bypasses("other, api.example", "API.example"));
  EXPECT_TRUE(bypasses("example", "api.example"));
  EXPECT_TRUE(bypasses(".example", "api.example"));
  EXPECT_TRUE(bypasses("*.example", "api.example"));
  EXPECT_FALSE(bypasses(".example", "example"));
  EXPECT_FALSE(bypasses("ample", "example"));
  EXPECT_FALSE(bypasses("", "example"));
  EXPECT_TRUE(bypasses("example:6443", "example", 6443));
  EXPECT_FALSE(bypasses("example:6443", "example", 443));
  EXPECT_TRUE(bypasses("10.0.0.0/8", "10.9.8.7"));
  EXPECT_FALSE(bypasses("10.0.0.0/9", "10.200.0.1"));
  EXPECT_FALSE(bypasses("10.0.0.0/-1", "192.168.0.1"));
  EXPECT_FALSE(bypasses("10.0.0.1/33", "10.0.0.1"));
  EXPECT_TRUE(bypasses("fd00::/8", "fd12::1"));
  EXPECT_FALSE(bypasses("fd00::/8", "10.9.8.7"));
  EXPECT_TRUE(bypasses("10.0.0.1", "10.0.0.1"));
  EXPECT_FALSE(bypasses("10.0.0.1", "10.0.0.10"));
  EXPECT_TRUE(bypasses("", "localhost"));
  EXPECT_TRUE(bypasses("", "127.0.0.9"));
  EXPECT_TRUE(bypasses("", "::1"));
}

TEST(ProxyTest, ProxyVariablesApplyOnlyToHttpsServers) {
  std::map<std::string, std::string> env{{"https_proxy", "http://lower:1"}, {"no_proxy", "direct"}};
  const auto proxy = [&](const std::string& server) {
    return ProxyFromEnvironment(
        [&](const char* name) -> const char* {
          const auto found = env.find(name);
          return found == env.end() ? nullptr : found->second.c_str();
        },
        net::ParseUrl(server).value());
  };
  EXPECT_EQ(proxy("https://api.example").value()->address.host, "lower");
  EXPECT_EQ(proxy("https://api.example").value()->ToString(), "lower:1 ($https_proxy)");
  EXPECT_FALSE(proxy("http://api.example").value().has_value());
  EXPECT_FALSE(proxy("https://direct").value().has_value());
  env["HTTPS_PROXY"] = "socks5://upper:1";
  const Status status = proxy("https://api.example").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with("$HTTPS_PROXY")) << status.message();
  env["HTTPS_PROXY"] = "ht!tp";
  EXPECT_EQ(proxy("https://api.example").status().code(), Code::kInvalidArgument);
  env["NO_PROXY"] = "api.example";
  EXPECT_FALSE(proxy("https://api.example").value().has_value());
}

}  // namespace
}  // namespace tessera::kube
