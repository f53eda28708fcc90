// SPDX-License-Identifier: Apache-2.0
#include "src/admission/review.h"

#include <gtest/gtest.h>

#include "src/admission/testing/reviews.h"
#include "src/formats/base64.h"

namespace tessera::admission {
namespace {

using testing::CreateOf;
using testing::PodJson;
using testing::ReviewOf;

Json AnswerOf(const AdmissionAnswer& answer) {
  const Json review = ParseJson(SerializeAdmissionReview(Uid("u-1"), answer)).value();
  EXPECT_EQ(review.StringAt("apiVersion").value(), "admission.k8s.io/v1");
  EXPECT_EQ(review.StringAt("kind").value(), "AdmissionReview");
  const Json response = *review.Find("response");
  EXPECT_EQ(response.StringAt("uid").value(), "u-1");
  return response;
}

TEST(AdmissionReviewTest, ReadsEveryFieldOfARequest) {
  AdmissionRequest sent = CreateOf(PodJson({{"nvidia.com/gpu", "1"}}));
  sent.subresource = "status";
  const auto read = ParseAdmissionReview(ReviewOf(sent));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->uid, Uid("u-1"));
  EXPECT_EQ(read->operation, "CREATE");
  EXPECT_EQ(read->resource, "pods");
  EXPECT_EQ(read->subresource, "status");
  EXPECT_EQ(read->ns, "ml");
  EXPECT_EQ(read->user, "alice");
  EXPECT_EQ(read->object, sent.object);
  EXPECT_TRUE(read->old_object.is_null());
}

TEST(AdmissionReviewTest, RejectsABodyThatIsNotAReviewWithTheReason) {
  const struct {
    const char* body;
    const char* says;
  } cases[] = {
      {"", "not valid JSON at byte 0"},
      {"[]", "instead of an AdmissionReview"},
      {"{}", "admissionReviewVersions: [v1]"},
      {R"({"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"})", "v1beta1"},
      {R"({"apiVersion":"v1","kind":"Pod"})", "\"Pod\""},
      {R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"})", "has no request"},
      {R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}})", "uid"},
      {R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",
           "request":{"uid":"u","operation":"CREATE"}})",
       "request.resource"},
  };
  for (const auto& test : cases) {
    const auto read = ParseAdmissionReview(test.body);
    ASSERT_FALSE(read.ok()) << test.body;
    EXPECT_NE(read.status().message().find(test.says), std::string::npos)
        << read.status().ToString();
  }
  EXPECT_EQ(ParseAdmissionReview(std::string(100'000, '[')).status().code(),
            Code::kInvalidArgument);
}

TEST(AdmissionReviewTest, ARejectionHasCodeReasonAndMessage) {
  const Json response = AnswerOf({.rejection = Error(Code::kInvalidArgument, "150 is wrong")});
  EXPECT_FALSE(response.BoolAt("allowed").value());
  const Json& status = *response.Find("status");
  EXPECT_EQ(status.IntAt("code").value(), 422);
  EXPECT_EQ(status.StringAt("reason").value(), "Invalid");
  EXPECT_EQ(status.StringAt("message").value(), "150 is wrong");
  EXPECT_EQ(AnswerOf({.rejection = Error(Code::kPermissionDenied, "no")})
                .Find("status")
                ->IntAt("code")
                .value(),
            403);
}

TEST(AdmissionReviewTest, APatchIsEncodedInBase64) {
  const Json::Array patch = {Json::MakeObject({{"op", Json::String("remove")}})};
  const Json response = AnswerOf({.patch = patch});
  EXPECT_TRUE(response.BoolAt("allowed").value());
  EXPECT_EQ(response.StringAt("patchType").value(), "JSONPatch");
  EXPECT_EQ(Base64Decode(response.StringAt("patch").value()).value(), R"([{"op":"remove"}])");
  EXPECT_EQ(AnswerOf({}).Find("patch"), nullptr);
  EXPECT_EQ(
      AnswerOf({.rejection = Error(Code::kInvalidArgument, "x"), .patch = patch}).Find("patch"),
      nullptr);
}

TEST(AdmissionReviewTest, WarningsFitIntoAnHttpHeader) {
  AdmissionAnswer answer;
  answer.warnings.push_back("a\r\nInjected: header\x01");
  answer.warnings.push_back(std::string(255, 'x') + "\xc3\xa9 more");
  for (int i = 0; i < 100; ++i) answer.warnings.emplace_back("w");
  const Json response = AnswerOf(answer);
  const Json& warnings = *response.Find("warnings");
  EXPECT_EQ(warnings.items()[0].string_value(), "a  Injected: header ");
  EXPECT_EQ(warnings.items()[1].string_value(), std::string(255, 'x'));
  size_t bytes = 0;
  for (const Json& warning : warnings.items()) bytes += warning.string_value().size();
  EXPECT_LE(bytes, 4096u);
}

}  // namespace
}  // namespace tessera::admission
