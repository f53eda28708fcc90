// SPDX-License-Identifier: Apache-2.0
#include "src/grant/message.h"

#include <gtest/gtest.h>

namespace tessera::grant {
namespace {

GrantRequest SomeRequest() {
  return {.pod_uid = Uid("0d9e1c5e-8b3c-4b52-9e40-1f2f3a4b5c6d"),
          .pod_namespace = "default",
          .pod_name = "cuda-vector-add",
          .container = "main",
          .tokens = {{"TESSERA_GRANT_NVIDIA_COM_GPU", "v1:00:11:GPU-1,GPU-2"}}};
}

Grant SomeGrant() {
  Grant grant;
  grant.devices = {{.uuid = "GPU-1",
                    .minor = 3,
                    .path = "/dev/nvidia3",
                    .host_path = "/run/nvidia/dev/nvidia3",
                    .major_number = 195,
                    .minor_number = 3}};
  grant.mounts = {{.host = "/a", .container = "/b", .options = {"ro", "nosuid"}}};
  grant.env = {{"NVIDIA_VISIBLE_DEVICES", "GPU-1"}};
  grant.driver_root = "/run/nvidia";
  grant.dev_root = "/";
  grant.agent_version = "0.1.0";
  return grant;
}

TEST(MessageTest, RequestRoundTrips) {
  const auto decoded = DecodeRequest(EncodeRequest(SomeRequest()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, SomeRequest());
}

TEST(MessageTest, GrantRoundTrips) {
  const auto decoded = DecodeReply(EncodeReply(SomeGrant()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, SomeGrant());
}

TEST(MessageTest, ErrorRoundTripsWithCodeAndMessage) {
  const auto decoded = DecodeReply(EncodeReply(Status(Code::kPermissionDenied, "held by a/b")));
  EXPECT_EQ(decoded.status().code(), Code::kPermissionDenied);
  EXPECT_EQ(decoded.status().message(), "held by a/b");
}

TEST(MessageTest, UnknownErrorCodeIsStillAnError) {
  const auto decoded = DecodeReply(R"({"error":{"code":"TIRED","message":"no"}})");
  EXPECT_EQ(decoded.status().code(), Code::kUnknown);
  EXPECT_FALSE(DecodeReply(R"({"error":{"code":"OK","message":"no"}})").ok());
}

TEST(MessageTest, IgnoresUnknownMembers) {
  std::string text = EncodeRequest(SomeRequest());
  text.insert(1, R"("future":[{"a":1}],)");
  const auto decoded = DecodeRequest(text);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, SomeRequest());
}

TEST(MessageTest, NamesTheMissingMember) {
  GrantRequest request = SomeRequest();
  request.pod_uid = Uid();
  const auto decoded = DecodeRequest(EncodeRequest(request));
  EXPECT_EQ(decoded.status().code(), Code::kInvalidArgument);
  EXPECT_NE(decoded.status().message().find("pod_uid"), std::string::npos);
}

TEST(MessageTest, ContainerMayHaveNoToken) {
  GrantRequest request = SomeRequest();
  request.tokens.clear();
  EXPECT_EQ(DecodeRequest(EncodeRequest(request)).value(), request);
}

TEST(MessageTest, CarriesTheVariablesThatLowerLimits) {
  GrantRequest request = SomeRequest();
  request.variables = {{"CUDA_DEVICE_MEMORY_LIMIT", "3g"}, {"CUDA_DEVICE_SM_LIMIT", ""}};
  EXPECT_EQ(DecodeRequest(EncodeRequest(request)).value(), request);
}

TEST(MessageTest, RejectsRequestsAboveTheLimits) {
  GrantRequest request = SomeRequest();
  for (size_t i = 0; i <= kMaxVariables; ++i) request.variables.emplace(fmt::format("v{}", i), "");
  EXPECT_EQ(DecodeRequest(EncodeRequest(request)).status().code(), Code::kResourceExhausted);
  request = SomeRequest();
  request.variables["CUDA_DEVICE_SM_LIMIT"].assign(kMaxNameLength + 1, '1');
  EXPECT_EQ(DecodeRequest(EncodeRequest(request)).status().code(), Code::kResourceExhausted);
  request = SomeRequest();
  request.tokens.resize(kMaxTokens + 1, request.tokens[0]);
  EXPECT_EQ(DecodeRequest(EncodeRequest(request)).status().code(), Code::kResourceExhausted);
  request = SomeRequest();
  request.pod_name.assign(kMaxNameLength + 1, 'x');
  EXPECT_EQ(DecodeRequest(EncodeRequest(request)).status().code(), Code::kResourceExhausted);
}

TEST(MessageTest, AcceptsRequestsAtTheLimits) {
  GrantRequest request = SomeRequest();
  request.pod_name.assign(kMaxNameLength, 'x');
  request.tokens.resize(kMaxTokens, request.tokens[0]);
  const auto decoded = DecodeRequest(EncodeRequest(request));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, request);
}

TEST(MessageTest, NullListIsEmpty) {
  const auto decoded = DecodeRequest(
      R"({"kind":"grant","pod_uid":"u","pod_namespace":"n","pod_name":"p","container":"c",)"
      R"("tokens":null})");
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_TRUE(decoded->tokens.empty());
}

TEST(MessageTest, ErrorWithMembersOfOtherTypesIsStillAnError) {
  const auto decoded = DecodeReply(R"({"error":{"code":7,"message":["x"]}})");
  EXPECT_EQ(decoded.status().code(), Code::kUnknown);
  EXPECT_EQ(decoded.status().message(), "");
}

// Decodes a reply in which the text `member` of the device is replaced by `replacement`.
Result<Grant> DecodeReplyWith(const std::string& member, const std::string& replacement) {
  Grant grant = SomeGrant();
  grant.devices[0].milli = 300;
  grant.devices[0].bytes = 5;
  std::string text = EncodeReply(grant);
  text.replace(text.find(member), member.size(), replacement);
  return DecodeReply(text);
}

TEST(MessageTest, DeviceNumbersHaveThirtyTwoBits) {
  const std::string member = R"("major_number":195)";
  EXPECT_EQ(DecodeReplyWith(member, R"("major_number":0)")->devices[0].major_number, 0u);
  EXPECT_EQ(DecodeReplyWith(member, R"("major_number":4294967295)")->devices[0].major_number,
            UINT32_MAX);
  EXPECT_EQ(DecodeReplyWith(member, R"("major_number":-1)").status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(DecodeReplyWith(member, R"("major_number":4294967296)").status().code(),
            Code::kInvalidArgument);
}

TEST(MessageTest, LimitsAreAtMostAWholeGpuWhichIsTheDefault) {
  const auto given = DecodeReplyWith("", "");
  EXPECT_EQ(given->devices[0].milli, 300);
  EXPECT_EQ(given->devices[0].bytes, 5);
  const std::string member = R"(,"milli":300,"bytes":5)";
  const auto absent = DecodeReplyWith(member, "");
  ASSERT_TRUE(absent.ok()) << absent.status().ToString();
  EXPECT_EQ(absent->devices[0].milli, 1000);
  EXPECT_EQ(absent->devices[0].bytes, 0);
  EXPECT_EQ(DecodeReplyWith(member, R"(,"milli":0)")->devices[0].milli, 0);
  EXPECT_EQ(DecodeReplyWith(member, R"(,"milli":1000)")->devices[0].milli, 1000);
  EXPECT_EQ(DecodeReplyWith(member, R"(,"milli":1001)").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(DecodeReplyWith(member, R"(,"milli":-1)").status().code(), Code::kInvalidArgument);
}

TEST(MessageTest, RejectsEveryPrefixOfARequest) {
  const std::string whole = EncodeRequest(SomeRequest());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(DecodeRequest(whole.substr(0, length)).ok()) << length;
  }
}

TEST(MessageTest, RejectsOtherJsonTypes) {
  for (const char* text : {"[]", "null", "{}", R"({"kind":"grant","tokens":{}})", R"({"kind":7})",
                           R"({"kind":"steal"})", "[[[[[[[[[[[[]]]]]]]]]]]]"}) {
    EXPECT_FALSE(DecodeRequest(text).ok()) << text;
  }
}

TEST(FrameTest, LengthRoundTrips) {
  const std::string frame = Frame("hello");
  std::array<unsigned char, kFrameHeaderSize> header;
  std::copy_n(frame.begin(), header.size(), header.begin());
  EXPECT_EQ(FrameLength(header).value(), 5u);
  EXPECT_EQ(frame.substr(kFrameHeaderSize), "hello");
}

TEST(FrameTest, HoldsABodyAtTheLimit) {
  const std::string frame = Frame(std::string(kMaxMessageSize, 'x'));
  std::array<unsigned char, kFrameHeaderSize> header;
  std::copy_n(frame.begin(), header.size(), header.begin());
  EXPECT_EQ(FrameLength(header).value(), kMaxMessageSize);
  const size_t more = kMaxMessageSize + 1;
  for (size_t i = 0; i < header.size(); ++i) header[i] = (more >> (8 * i)) & 0xff;
  EXPECT_EQ(FrameLength(header).status().code(), Code::kResourceExhausted);
}

TEST(FrameTest, RejectsLengthsOutOfBounds) {
  EXPECT_FALSE(FrameLength({0, 0, 0, 0}).ok());
  EXPECT_EQ(FrameLength({0xff, 0xff, 0xff, 0xff}).status().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace tessera::grant
