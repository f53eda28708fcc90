// SPDX-License-Identifier: Apache-2.0
#include "src/net/assets.h"

#include <gtest/gtest.h>

namespace tessera::net {
namespace {

constexpr Asset kScript{"/app.js", "text/javascript", "compressed", "\"1f3a\""};

Request RequestWith(const char* accept_encoding, const char* if_none_match = "") {
  Request request;
  request.headers.Add("Accept-Encoding", accept_encoding);
  if (*if_none_match != '\0') request.headers.Add("If-None-Match", if_none_match);
  return request;
}

TEST(AssetsTest, AreSentCompressedWithATag) {
  const Response response = RespondAsset(kScript, RequestWith("br, gzip;q=0.5"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "compressed");
  EXPECT_EQ(response.headers.Get("content-encoding"), "gzip");
  EXPECT_EQ(response.headers.Get("etag"), "\"1f3a\"");
  EXPECT_EQ(response.headers.Get("vary"), "Accept-Encoding");
}

TEST(AssetsTest, AClientWithTheCurrentVersionGets304WithoutBody) {
  const Response response = RespondAsset(kScript, RequestWith("gzip", "\"0\", W/\"1f3a\""));
  EXPECT_EQ(response.status, 304);
  EXPECT_EQ(response.body, "");
  EXPECT_EQ(SerializeResponseHead(response, true).find("Content-Length"), std::string::npos);
  EXPECT_EQ(RespondAsset(kScript, RequestWith("gzip", "\"0\"")).status, 200);
}

TEST(AssetsTest, AClientWithoutGzipGetsAnExplanation) {
  for (const char* accepts : {"", "br", "gzip;q=0", "identity, gzip; q=0.000", "*;q=0"}) {
    EXPECT_EQ(RespondAsset(kScript, RequestWith(accepts)).status, 406) << accepts;
  }
  for (const char* accepts : {"gzip", "*", "GZIP;q=1", "deflate, gzip;q=0.05"}) {
    EXPECT_EQ(RespondAsset(kScript, RequestWith(accepts)).status, 200) << accepts;
  }
}

TEST(AssetsTest, AreFoundByPath) {
  EXPECT_EQ(FindAsset({&kScript, 1}, "/app.js"), &kScript);
  EXPECT_EQ(FindAsset({&kScript, 1}, "/app.jsx"), nullptr);
}

}  // namespace
}  // namespace tessera::net
