// SPDX-License-Identifier: Apache-2.0
#include "src/net/http.h"

#include <gtest/gtest.h>

#include "src/net/address.h"

namespace tessera::net {
namespace {

TEST(HeadersTest, NamesCompareWithoutCase) {
  Headers headers{{"Content-Type", "a"}, {"X", "1"}, {"x", "2"}};
  EXPECT_EQ(headers.Get("content-type"), "a");
  EXPECT_EQ(headers.Get("missing"), "");
  headers.Set("X", "3");
  EXPECT_EQ(headers.size(), 2u);
  EXPECT_EQ(headers.Get("x"), "3");
}

TEST(RequestTest, DecodesQueryParameters) {
  const Request request{.target = "/a/b?x=1%202&flag&y=%zz&x=3"};
  EXPECT_EQ(request.path(), "/a/b");
  EXPECT_EQ(request.Query("x"), "1 2");
  EXPECT_EQ(request.Query("flag"), "");
  EXPECT_EQ(request.Query("y"), "");
  EXPECT_EQ(request.Query("z"), std::nullopt);
}

TEST(SerializeTest, RejectsHeadersThatWouldSplitTheRequest) {
  EXPECT_FALSE(SerializeRequest({.method = "GET /x"}).ok());
  EXPECT_FALSE(SerializeRequest({.target = "/a b"}).ok());
  EXPECT_FALSE(SerializeRequest({.target = "/a\r\nX: y"}).ok());
  EXPECT_FALSE(SerializeRequest({.headers = {{"X", "a\r\nY: b"}}}).ok());
  EXPECT_FALSE(SerializeRequest({.headers = {{"X Y", "a"}}}).ok());
}

TEST(SerializeTest, WritesLengthAndBody) {
  EXPECT_EQ(SerializeRequest({.method = "PUT", .target = "/x", .body = "abc"}).value(),
            "PUT /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(SerializeRequest({}).value(), "GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(SerializeResponseHead({404, {{"Bad", "a\nb"}}, "no"}, false),
            "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\n");
}

TEST(PercentTest, EncodesAndDecodes) {
  EXPECT_EQ(PercentEncode("a/b c~1"), "a%2Fb%20c~1");
  EXPECT_EQ(PercentDecode("a%2Fb%20c").value(), "a/b c");
  EXPECT_FALSE(PercentDecode("%2").ok());
  EXPECT_FALSE(PercentDecode("%").ok());
  EXPECT_FALSE(PercentDecode("%g0").ok());
}

TEST(AddressTest, ParsesEveryForm) {
  for (const char* text : {":9400", "10.0.0.1:80", "[::1]:9400", "host:1", "unix:/run/x.sock"}) {
    EXPECT_EQ(ParseAddress(text).value().ToString(), text);
  }
  for (const char* text : {"", "9400", "::1:80", "[::1", "[::1]80", "a:b", "a:70000", "unix:"}) {
    EXPECT_EQ(ParseAddress(text).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_TRUE(ParseAddress("unix:" + std::string(107, 'x')).ok());
  EXPECT_EQ(ParseAddress("unix:" + std::string(108, 'x')).status().code(), Code::kInvalidArgument);
}

TEST(UrlTest, ParsesSchemePortAndPath) {
  const Url url = ParseUrl("https://10.0.0.1:6443/base/").value();
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(url.address.port, 6443);
  EXPECT_EQ(url.path, "/base");
  EXPECT_EQ(url.HostField(), "10.0.0.1:6443");
  EXPECT_EQ(ParseUrl("https://[fd00::1]").value().HostField(), "[fd00::1]");
  EXPECT_EQ(ParseUrl("http://host").value().address.port, 80);
  for (const char* text : {"", "host", "ftp://x", "https://", "http://u@h", "http://h?q"}) {
    EXPECT_FALSE(ParseUrl(text).ok()) << text;
  }
}

TEST(UrlTest, AnErrorDoesNotQuoteThePasswordOfAUrl) {
  for (const char* text : {"https://user:hush@host", "ftp://user:hush@host", "user:hush@host",
                           "https://user:hush@more@host/path"}) {
    const std::string error = ParseUrl(text).status().message();
    EXPECT_EQ(error.find("hush"), std::string::npos) << error;
    EXPECT_NE(error.find("...@host"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace tessera::net
