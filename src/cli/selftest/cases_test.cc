// SPDX-License-Identifier: Apache-2.0
#include "src/cli/selftest/cases.h"

#include <gtest/gtest.h>

#include "api/names.h"
#include "src/device/assignment.h"

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

const TestCase& CaseOf(std::string_view name) {
  for (const TestCase& test : TestCases()) {
    if (name == test.name) return test;
  }
  ADD_FAILURE() << name;
  return TestCases()[0];
}

CaseResult Ended(const std::string& phase, const std::string& log, const std::string& assignment) {
  CaseResult result{.log = log};
  result.pod = Json::MakeObject(
      {{"metadata", Json::MakeObject({{"annotations",
                                       Json::MakeObject({{std::string(names::kAnnotationAssignment),
                                                          Json::String(assignment)}})}})},
       {"status", Json::MakeObject({{"phase", Json::String(phase)}})}});
  return result;
}

constexpr const char* kUuid = "GPU-11111111-2222-3333-4444-555555555555";
std::string AssignmentOfOneGpu() {
  device::Assignment assignment;
  assignment.containers["main"] = {{kUuid, kWholeGpu, GiB(1)}};
  return device::EncodeAssignment(assignment).value();
}
const std::string kAssigned = AssignmentOfOneGpu();

TEST(TestCasesTest, APodRequestsTheResourceOfItsCase) {
  const Json pod = PodOfCase(CaseOf("memory-limit"), "ns", "img", "Never", 150s);
  EXPECT_EQ(FindPath(pod, {"spec", "activeDeadlineSeconds"})->ToInt().value(), 150);
  const Json& container = pod.Find("spec")->Find("containers")->items()[0];
  EXPECT_EQ(FindPath(container, {"resources", "limits", "aliyun.com/gpu-mem"})->ToInt().value(), 1);
  EXPECT_EQ(container.Find("args")->items().size(), 2u);
  const Json denied = PodOfCase(CaseOf("default-deny"), "ns", "img", "Never", 150s);
  EXPECT_EQ(denied.Serialize().find("nvidia.com/gpu"), std::string::npos);
  EXPECT_NE(denied.Serialize().find(R"("NVIDIA_VISIBLE_DEVICES","value":"all")"),
            std::string::npos);
}

TEST(TestCasesTest, CasesWithoutTheirResourceAreSkippedWithTheReason) {
  const Json node = ParseJson(R"({"status":{"allocatable":{"nvidia.com/gpu":"1"}}})").value();
  EXPECT_EQ(ReasonToSkip(CaseOf("whole-gpu"), {node}), "");
  EXPECT_EQ(ReasonToSkip(CaseOf("linked-pair"), {node}), "no node offers 2 of nvidia.com/gpu");
  EXPECT_EQ(ReasonToSkip(CaseOf("default-deny"), {}), "");
}

TEST(TestCasesTest, TheProgramMustEndAsExpected) {
  const TestCase& limit = CaseOf("memory-limit");
  EXPECT_EQ(Judge(limit, Ended("Failed", "CUDA_ERROR_OUT_OF_MEMORY", kAssigned)), "");
  EXPECT_EQ(Judge(limit, Ended("Succeeded", "Test PASSED", kAssigned)),
            "the program succeeded, and should have been stopped; its log ends with: Test PASSED");
  EXPECT_NE(Judge(limit, Ended("Failed", "no driver", kAssigned)), "");
  EXPECT_EQ(Judge(CaseOf("default-deny"), Ended("Failed", "a GPU is visible", "")),
            "the program failed; its log ends with: a GPU is visible");
}

TEST(TestCasesTest, TheProgramSeesTheAssignedGpusAndNoOther) {
  const TestCase& whole = CaseOf("whole-gpu");
  const std::string uuid(kUuid);
  EXPECT_EQ(Judge(whole, Ended("Succeeded", "UUID: " + uuid, kAssigned)), "");
  EXPECT_NE(Judge(whole, Ended("Succeeded", "UUID: GPU-other", kAssigned)), "");
  EXPECT_NE(Judge(whole, Ended("Succeeded", uuid + "\nGPU-99999999-2222-3333-4444-555555555555",
                               kAssigned)),
            "");
  EXPECT_NE(Judge(whole, Ended("Succeeded", uuid, "")), "");
}

TEST(TestCasesTest, SaysWhyAPodWaits) {
  EXPECT_EQ(ReasonOfWait(ParseJson(R"({"status":{"conditions":[{"type":"PodScheduled",)"
                                   R"("status":"False","message":"0/3 nodes"}]}})")
                             .value()),
            "not scheduled: 0/3 nodes");
  EXPECT_EQ(ReasonOfWait(ParseJson(R"({"status":{"containerStatuses":[{"state":{"waiting":)"
                                   R"({"reason":"ErrImagePull","message":"not found"}}}]}})")
                             .value()),
            "ErrImagePull: not found");
}

}  // namespace
}  // namespace tessera::cli
