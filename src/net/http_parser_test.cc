// SPDX-License-Identifier: Apache-2.0
#include "src/net/http_parser.h"

#include <gtest/gtest.h>

namespace tessera::net {
namespace {

using MessageKind = HttpParser::MessageKind;

Status PutAll(HttpParser* parser, std::string_view bytes, size_t step) {
  for (size_t at = 0; at < bytes.size(); at += step) {
    RETURN_IF_ERROR(parser->Put(bytes.substr(at, step)));
  }
  return Status::Ok();
}

TEST(HttpParserTest, ReadsARequestInPiecesOfAnySize) {
  const std::string text =
      "POST /a?x=1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: t\r\n\r\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    HttpParser parser(MessageKind::kRequest, {});
    ASSERT_TRUE(PutAll(&parser, text, step).ok()) << step;
    ASSERT_TRUE(parser.done()) << step;
    EXPECT_EQ(parser.request().method, "POST");
    EXPECT_EQ(parser.request().target, "/a?x=1");
    EXPECT_EQ(parser.request().headers.Get("host"), "h");
    EXPECT_FALSE(parser.request().headers.Has("Trailer"));
    EXPECT_EQ(parser.TakeBody(), "hello world");
    EXPECT_TRUE(parser.keep_alive());
  }
}

TEST(HttpParserTest, KeepsTheBytesAfterTheMessage) {
  HttpParser parser(MessageKind::kRequest, {});
  ASSERT_TRUE(parser.Put("GET / HTTP/1.1\r\n\r\nGET /next HTTP/1.1\r\n\r\n").ok());
  ASSERT_TRUE(parser.done());
  EXPECT_EQ(parser.TakeRest(), "GET /next HTTP/1.1\r\n\r\n");
}

TEST(HttpParserTest, ReadsAResponseThatEndsWithTheConnection) {
  HttpParser parser(MessageKind::kResponse, {});
  ASSERT_TRUE(parser.Put("HTTP/1.1 200 OK\r\n\r\nabc").ok());
  EXPECT_FALSE(parser.done());
  ASSERT_TRUE(parser.PutEof().ok());
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(parser.TakeBody(), "abc");
  EXPECT_FALSE(parser.keep_alive());
}

TEST(HttpParserTest, ReportsAMessageThatWasCutOff) {
  for (const std::string_view text :
       {"HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    HttpParser parser(MessageKind::kResponse, {});
    ASSERT_TRUE(parser.Put(text).ok()) << text;
    EXPECT_EQ(parser.PutEof().code(), Code::kUnavailable) << text;
  }
}

TEST(HttpParserTest, AResponseToHeadHasNoBody) {
  HttpParser parser(MessageKind::kResponseToHead, {});
  ASSERT_TRUE(parser.Put("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").ok());
  EXPECT_TRUE(parser.done());
}

struct BadCase {
  const char* name;
  std::string text;
  Code code;
};

class HttpParserRejectsTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(HttpParserRejectsTest, RejectsInputInOnePieceAndByteByByte) {
  for (const size_t step : {size_t{1} << 20, size_t{1}}) {
    HttpParser parser(MessageKind::kRequest, {.max_header_bytes = 1024, .max_body_bytes = 16});
    const Status status = PutAll(&parser, GetParam().text, step);
    EXPECT_EQ(status.code(), GetParam().code) << status.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(
    , HttpParserRejectsTest,
    ::testing::Values(
        BadCase{"Garbage", "\x16\x03\x01 hello\r\n\r\n", Code::kInvalidArgument},
        BadCase{"Http2Preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Code::kInvalidArgument},
        BadCase{"LongHeader", "GET / HTTP/1.1\r\nX: " + std::string(2000, 'x'), Code::kOutOfRange},
        BadCase{"EndlessFields",
                [] {
                  std::string text = "GET / HTTP/1.1\r\n";
                  for (int i = 0; i < 500; ++i) text += "a: b\r\n";
                  return text;
                }(),
                Code::kOutOfRange},
        BadCase{"LengthAndChunked",
                "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                Code::kInvalidArgument},
        BadCase{"ChunkedAndLength",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
                Code::kInvalidArgument},
        BadCase{"TwoLengths", "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
                Code::kInvalidArgument},
        BadCase{"NegativeLength", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                Code::kInvalidArgument},
        BadCase{"ForeignCoding", "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
                Code::kInvalidArgument},
        BadCase{"ForeignCodingFirst",
                "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                Code::kInvalidArgument},
        BadCase{"LongBody", "POST / HTTP/1.1\r\nContent-Length: 17\r\n\r\n",
                Code::kResourceExhausted},
        BadCase{"LongChunks",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                "a\r\n0123456789\r\na\r\n0123456789\r\n",
                Code::kResourceExhausted},
        BadCase{"HugeChunk",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                Code::kResourceExhausted},
        BadCase{"BadChunk", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                Code::kInvalidArgument},
        BadCase{"EndlessChunkExtension",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(2000, 'x'),
                Code::kOutOfRange},
        BadCase{"EndlessTrailer",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " +
                    std::string(2000, 'x'),
                Code::kOutOfRange},
        BadCase{"ZeroByteInHeader", std::string("GET / HTTP/1.1\r\nX: a\0b\r\n\r\n", 26),
                Code::kInvalidArgument}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::net
