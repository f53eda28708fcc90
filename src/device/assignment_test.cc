// SPDX-License-Identifier: Apache-2.0
#include "src/device/assignment.h"

#include <gtest/gtest.h>

#include "src/device/request.h"

namespace tessera::device {
namespace {

TEST(AssignmentTest, EncodesTheDocumentedText) {
  const Assignment assignment{
      {{"side", {{"MIG-b", kWholeGpu, GiB(10)}}},
       {"main", {{"GPU-b", MilliGpu(300), GiB(5)}, {"GPU-a", MilliGpu(0), Bytes(0)}}}}};
  const std::string text = *EncodeAssignment(assignment);
  EXPECT_EQ(text, R"({"version":1,"containers":{)"
                  R"("main":[{"gpu":"GPU-b","milli":300,"bytes":5368709120},)"
                  R"({"gpu":"GPU-a","milli":0,"bytes":0}],)"
                  R"("side":[{"gpu":"MIG-b","milli":1000,"bytes":10737418240}]}})");
  EXPECT_EQ(*DecodeAssignment(text), assignment);
  EXPECT_EQ(*DecodeAssignment(*EncodeAssignment({})), Assignment{});
}

TEST(AssignmentTest, IgnoresMembersOfLaterVersions) {
  const Result<Assignment> assignment = DecodeAssignment(
      R"({"containers":{"a":[{"bytes":1,"milli":2,"gpu":"G","x":{}}]},"node":"n","version":1})");
  ASSERT_TRUE(assignment.ok()) << assignment.status().ToString();
  EXPECT_EQ(assignment->containers.at("a")[0], (DeviceShare{"G", MilliGpu(2), Bytes(1)}));
}

TEST(AssignmentTest, NamesTheFieldAndTheReason) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {R"([])", "must be a JSON object"},
      {R"({"containers":{}})", "version: is missing"},
      {R"({"version":2,"containers":{}})", "version: 2 is not supported, only 1"},
      {R"({"version":1,"version":1,"containers":{}})", "version: occurs twice"},
      {R"({"version":1})", "containers: is missing"},
      {R"({"version":1,"containers":[]})", "containers: must be an object, not an array"},
      {R"({"version":1,"containers":{"A":[]}})", "containers: \"A\" is not a valid container name"},
      {R"({"version":1,"containers":{"":[]}})", "containers: \"\" is not a valid container name"},
      {R"({"version":1,"containers":{"-a":[]}})",
       "containers: \"-a\" is not a valid container name"},
      {R"({"version":1,"containers":{"a":{}}})", "containers.a: must be an array, not an object"},
      {R"({"version":1,"containers":{"a":[]}})", "containers.a: has no device"},
      {R"({"version":1,"containers":{"a":[7]}})", "containers.a[0]: must be an object"},
      {R"({"version":1,"containers":{"a":[{"milli":1,"bytes":1}]}})",
       "containers.a[0].gpu: is missing"},
      {R"({"version":1,"containers":{"a":[{"gpu":7,"milli":1,"bytes":1}]}})",
       "containers.a[0].gpu: must be a string, not a number"},
      {R"({"version":1,"containers":{"a":[{"gpu":"x,y","milli":1,"bytes":1}]}})",
       "containers.a[0].gpu: \"x,y\" is not a UUID"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","bytes":1}]}})",
       "containers.a[0].milli: is missing"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":1}]}})",
       "containers.a[0].bytes: is missing"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":1,"bytes":1,"milli":2}]}})",
       "containers.a[0].milli: occurs twice"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":1001,"bytes":1}]}})",
       "containers.a[0].milli: 1001 is not between 0 and 1000"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":-1,"bytes":1}]}})",
       "containers.a[0].milli: -1 is not between 0 and 1000"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":0.5,"bytes":1}]}})",
       "containers.a[0].milli: must be a whole number"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":1,"bytes":-1}]}})",
       "containers.a[0].bytes: -1 is not between 0 and 1125899906842624"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":1,"bytes":9223372036854775808}]}})",
       "containers.a[0].bytes: must be a whole number"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":1,"bytes":1},)"
       R"({"gpu":"G","milli":1,"bytes":1}]}})",
       "containers.a[1].gpu: G occurs twice"},
      {R"({"version":1,"containers":{"a":[{"gpu":"G","milli":1,"bytes":1}],"a":[]}})",
       "containers: a occurs twice"},
  };
  for (const auto& test : kCases) {
    const Result<Assignment> assignment = DecodeAssignment(test.text);
    EXPECT_EQ(assignment.status().code(), Code::kInvalidArgument) << test.text;
    EXPECT_EQ(assignment.status().message(), test.message);
  }
}

TEST(AssignmentTest, EncodesOnlyDecodableAssignments) {
  const std::vector<std::pair<std::string, DeviceShare>> kBad = {
      {"A", {"G", MilliGpu(1), Bytes(1)}},
      {std::string(64, 'a'), {"G", MilliGpu(1), Bytes(1)}},
      {"a", {"", MilliGpu(1), Bytes(1)}},
      {"a", {"G\n", MilliGpu(1), Bytes(1)}},
      {"a", {std::string(97, 'G'), MilliGpu(1), Bytes(1)}},
      {"a", {"G", MilliGpu(-1), Bytes(1)}},
      {"a", {"G", MilliGpu(1001), Bytes(1)}},
      {"a", {"G", MilliGpu(1), Bytes(-1)}},
      {"a", {"G", MilliGpu(1), kMaxShareMemory + Bytes(1)}},
  };
  for (const auto& [name, share] : kBad) {
    EXPECT_EQ(EncodeAssignment({{{name, {share}}}}).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(EncodeAssignment({{{"a", {}}}}).status().message(), "containers.a: has no device");
}

TEST(AssignmentTest, AcceptsNamesAndUuidsUpToTheirLimits) {
  const std::string name = "az-09" + std::string(57, 'm') + "z";
  const std::string uuid = "MIG-GPU/az_AZ-09" + std::string(80, 'Z');
  ASSERT_EQ(name.size(), 63u);
  ASSERT_EQ(uuid.size(), 96u);
  const Assignment assignment{{{name, {{uuid, kWholeGpu, kMaxShareMemory}}}}};
  EXPECT_EQ(*DecodeAssignment(*EncodeAssignment(assignment)), assignment);
}

TEST(AssignmentTest, WritesAndReadsAsManyBytesAsTheLimitAllows) {
  Assignment assignment;
  const auto size = [&] { return EncodeAssignment(assignment)->size(); };
  // A container takes about 50 bytes. The steps halve the remaining space until the text is full.
  int containers = 0;
  while (size() < kMaxAssignmentBytes - 300) {
    const int last = containers + static_cast<int>(kMaxAssignmentBytes - size()) / 100;
    for (; containers <= last; ++containers) {
      assignment.containers[fmt::format("c{}", containers)] = {{"GPU-x", MilliGpu(1), Bytes(1)}};
    }
  }
  std::vector<DeviceShare>& shares = assignment.containers["z"];
  shares = {
      {"G", MilliGpu(1), Bytes(1)}, {"H", MilliGpu(1), Bytes(1)}, {"I", MilliGpu(1), Bytes(1)}};
  for (DeviceShare& share : shares) {
    const size_t free_bytes = kMaxAssignmentBytes - size();
    share.uuid += std::string(std::min<size_t>(free_bytes, 95), 'x');
  }
  ASSERT_EQ(size(), kMaxAssignmentBytes);
  EXPECT_EQ(*DecodeAssignment(*EncodeAssignment(assignment)), assignment);
  assignment.containers["z"].push_back({"J", MilliGpu(1), Bytes(1)});
  EXPECT_EQ(EncodeAssignment(assignment).status().code(), Code::kResourceExhausted);
}

TEST(AssignmentTest, RejectsOversizedInput) {
  Assignment assignment;
  for (int i = 0; i < 2000; ++i) {
    assignment.containers[fmt::format("c-{}", i)] = {{"GPU-x", MilliGpu(1), Bytes(1)}};
  }
  EXPECT_EQ(EncodeAssignment(assignment).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(DecodeAssignment(std::string(kMaxAssignmentBytes + 1, ' ')).status().message(),
            "65537 bytes of JSON, at most 65536 are read");
}

}  // namespace
}  // namespace tessera::device
