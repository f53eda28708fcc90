// SPDX-License-Identifier: Apache-2.0
#include "src/kube/api_error.h"

#include <gtest/gtest.h>

#include "src/kube/backoff.h"
#include "src/kube/testing/wire_writer.h"

namespace tessera::kube {
namespace {

net::Response StatusAnswer(int http, const std::string& reason) {
  return {http,
          {},
          fmt::format(R"({{"kind":"Status","message":"words","reason":"{}","code":{}}})", reason,
                      http)};
}

TEST(ApiErrorTest, MapsReasonsToCodes) {
  EXPECT_EQ(ErrorOf(StatusAnswer(409, "AlreadyExists")).code(), Code::kAlreadyExists);
  EXPECT_EQ(ErrorOf(StatusAnswer(409, "Conflict")).code(), Code::kAborted);
  EXPECT_EQ(ErrorOf(StatusAnswer(410, "Expired")).code(), Code::kOutOfRange);
  EXPECT_EQ(ErrorOf(StatusAnswer(403, "Forbidden")).code(), Code::kPermissionDenied);
  EXPECT_EQ(ErrorOf(StatusAnswer(422, "Invalid")).code(), Code::kInvalidArgument);
  EXPECT_EQ(ErrorOf(StatusAnswer(429, "TooManyRequests")).code(), Code::kResourceExhausted);
  EXPECT_EQ(ErrorOf(StatusAnswer(504, "Timeout")).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(ErrorOf(StatusAnswer(403, "Forbidden")).message(), "words (Forbidden, HTTP 403)");
}

TEST(ApiErrorTest, NamesTheManagersOfConflictingFields) {
  const Status status =
      ErrorOf({409,
               {},
               R"({"kind":"Status","message":"Apply failed with 2 conflicts: …","reason":"Conflict",
           "code":409,"details":{"causes":[
           {"reason":"FieldManagerConflict","field":".spec.replicas",
            "message":"conflict with \"kubectl-edit\" using apps/v1"},
           {"reason":"Other","message":"x"},
           {"reason":"FieldManagerConflict","field":".data.a","message":"odd"}]}})"});
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_EQ(status.message(),
            "\"kubectl-edit\" manages .spec.replicas, \"odd\" manages .data.a: remove these fields "
            "from the applied object, or take them over with force (Conflict, HTTP 409)");
}

TEST(ApiErrorTest, QuotesTheTextOfAProxy) {
  const Status status = ErrorOf({502, {}, "<html>bad gateway</html>"});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("bad gateway"), std::string::npos);
  EXPECT_NE(ErrorOf({404, {}, ""}).message().find("404"), std::string::npos);
  EXPECT_EQ(ErrorOf({401, {}, "{\"kind\":\"Status\",\"message\":7}"}).code(),
            Code::kUnauthenticated);
}

TEST(ApiErrorTest, PlainHttpToATlsPortIsAFailedPrecondition) {
  const net::Response answer{400, {}, "Client sent an HTTP request to an HTTPS server.\n"};
  EXPECT_EQ(ErrorOf(answer).code(), Code::kFailedPrecondition);
  EXPECT_EQ(ErrorOf({400, {}, "no"}).code(), Code::kInvalidArgument);
}

TEST(ApiErrorTest, ReadsAStatusInProtobuf) {
  const std::string status = testing::WireWriter().Bytes(3, "words").Bytes(4, "Expired").text();
  const net::Headers headers{{"Content-Type", "application/vnd.kubernetes.protobuf"}};
  const Status error = ErrorOf({410, headers, testing::Enveloped("Status", status)});
  EXPECT_EQ(error.code(), Code::kOutOfRange);
  EXPECT_EQ(error.message(), "words (Expired, HTTP 410)");
  EXPECT_EQ(ErrorOf({500, headers, "k8s"}).code(), Code::kInternal);
}

TEST(ApiErrorTest, RetryAfterIsAtMostFiveMinutes) {
  const auto after = [](const char* value) {
    return RetryAfter({429, {{"Retry-After", value}}, ""});
  };
  EXPECT_EQ(after("2"), std::chrono::seconds(2));
  EXPECT_EQ(after("-5"), std::chrono::seconds(0));
  EXPECT_EQ(after("99999999"), std::chrono::minutes(5));
  EXPECT_EQ(after("Wed, 21 Oct 2015 07:28:00 GMT"), std::nullopt);
  EXPECT_EQ(RetryAfter({429, {}, ""}), std::nullopt);
}

TEST(BackoffTest, DoublesWithinJitterUpToItsLimit) {
  Backoff backoff(1);
  for (int i = 0; i < 100; ++i) {
    const Duration whole =
        std::min(Backoff::kMax, Backoff::kFirst * (int64_t{1} << std::min(i, 20)));
    const Duration wait = backoff.Next();
    EXPECT_GE(wait, whole / 2);
    EXPECT_LE(wait, whole);
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), Backoff::kFirst);
}

TEST(BackoffTest, WaitsOfTwoClientsDiffer) { EXPECT_NE(Backoff(1).Next(), Backoff(2).Next()); }

}  // namespace
}  // namespace tessera::kube
