// SPDX-License-Identifier: Apache-2.0
#include "src/console/gate.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::console {
namespace {

TEST(CheckOriginTest, AcceptsThisSiteOnly) {
  const auto check = [](net::Headers headers) {
    headers.Set("Host", "console.example:8090");
    return CheckOrigin({.headers = std::move(headers)}).ok();
  };
  EXPECT_TRUE(check({}));  // not a browser
  EXPECT_TRUE(check({{"Origin", "https://console.example:8090"}}));
  EXPECT_TRUE(check({{"Sec-Fetch-Site", "same-origin"}}));
  EXPECT_FALSE(check({{"Origin", "https://console.example"}}));
  EXPECT_FALSE(check({{"Origin", "https://evil.example"}}));
  EXPECT_FALSE(check({{"Origin", "https://evil.example/console.example:8090"}}));
  EXPECT_FALSE(check({{"Origin", "null"}}));
  EXPECT_FALSE(check({{"Sec-Fetch-Site", "same-site"}}));
  EXPECT_FALSE(check({{"Sec-Fetch-Site", "cross-site"}}));
}

TEST(RateLimitTest, AllowsABurstAndThenTheRate) {
  RateLimit limit(2, 3);
  const MonotonicTime start{};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.Allow("a", start));
  EXPECT_FALSE(limit.Allow("a", start));
  EXPECT_TRUE(limit.Allow("b", start));
  EXPECT_TRUE(limit.Allow("a", start + std::chrono::milliseconds(500)));
  EXPECT_FALSE(limit.Allow("a", start + std::chrono::milliseconds(600)));
}

TEST(RateLimitTest, ManyOtherClientsDoNotResetAClientsCount) {
  RateLimit limit(2, 3);
  const MonotonicTime start{};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.Allow("a", start));
  for (size_t i = 0; i < 2 * RateLimit::kMaxClients; ++i) {
    ASSERT_TRUE(limit.Allow(std::to_string(i), start)) << "no new client is rejected";
  }
  EXPECT_FALSE(limit.Allow("a", start));
  EXPECT_TRUE(limit.Allow("a", start + std::chrono::milliseconds(500)));
  EXPECT_FALSE(limit.Allow("a", start + std::chrono::milliseconds(500)));
}

TEST(RateLimitTest, ManyOtherClientsDoNotRejectAClientThatSendsSlowly) {
  RateLimit limit(2, 3);
  MonotonicTime now{};
  for (int second = 0; second < 5; ++second, now += std::chrono::seconds(1)) {
    for (size_t i = 0; i < RateLimit::kMaxClients; ++i) {
      while (limit.Allow(std::to_string(i), now)) continue;
    }
    EXPECT_TRUE(limit.Allow("a", now)) << second;
  }
}

TEST(GateTest, ReadsCookiesAndBearerTokens) {
  const net::Request request{
      .headers = {{"Cookie", "a=1; tessera_session=x=y; b"}, {"Authorization", "Bearer  t0k "}}};
  EXPECT_EQ(CookieOf(request, "tessera_session"), "x=y");
  EXPECT_EQ(CookieOf(request, "tessera"), "");
  EXPECT_EQ(BearerOf(request), "t0k");
  EXPECT_EQ(BearerOf({.headers = {{"Authorization", "Basic eA=="}}}), "");
}

TEST(GateTest, TheCookieNameDependsOnHttpsAndTheSuffix) {
  EXPECT_EQ(SessionCookieName(false, ""), "tessera_session");
  EXPECT_EQ(SessionCookieName(true, ""), "__Host-tessera_session");
  EXPECT_EQ(SessionCookieName(false, "1f"), "tessera_session_1f");
}

TEST(GateTest, KnowsLoopbackHosts) {
  for (const char* host : {"127.0.0.1:80", "localhost:1", "[::1]:1", "[::1]", "localhost"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host : {"", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1:1"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

TEST(GateTest, ThePolicyAllowsNoInlineCode) {
  net::Response response;
  AddSecurityHeaders(&response);
  const std::string_view policy = response.headers.Get("Content-Security-Policy");
  EXPECT_EQ(policy.find("unsafe"), std::string_view::npos);
  EXPECT_NE(policy.find("default-src 'none'"), std::string_view::npos);
}

}  // namespace
}  // namespace tessera::console
