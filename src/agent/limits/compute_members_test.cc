// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/compute_members.h"

#include <gtest/gtest.h>

#include "api/names.h"
#include "src/agent/pods/testing/fake_pods.h"

namespace tessera::agent {
namespace {

using limiter::PriorityClass;

// A container with 30 hundredths of GPU-1.
ContainerUsage::RegionFiles FilesOf(const std::string& pod, int milli = 300) {
  return {.holder = {Uid("uid-" + pod), "default", pod, "main"},
          .shares = {{"GPU-1", MilliGpu(milli), GiB(4)}}};
}

class ComputeMembersTest : public ::testing::Test {
 protected:
  void SetPod(const std::string& compute_class, const std::string& elastic = "",
              const std::string& limit = "") {
    PodInfo pod = FakeApiPods::Make("a", {});
    if (!compute_class.empty()) {
      pod.annotations[std::string(names::kAnnotationComputeClass)] = compute_class;
    }
    if (!limit.empty()) pod.annotations[std::string(names::kAnnotationComputeLimit)] = limit;
    device::DeviceRequest request;
    if (!elastic.empty()) request.elastic_limit = MilliGpu(std::stoi(elastic) * 10);
    pod.request = request;
    pods_.Set(std::move(pod));
  }
  limiter::ComputeShare Share() {
    const auto members = ComputeMembers({FilesOf("a")}, {}, pods_.pods());
    EXPECT_EQ(members.size(), 1u);
    return members.at(0).share;
  }

  FakeApiPods pods_;
};

TEST_F(ComputeMembersTest, AContainerHasItsGrantedShare) {
  SetPod("");
  EXPECT_EQ(Share(), (limiter::ComputeShare{.request = 0.3, .limit = 0.3}));
  EXPECT_EQ(ComputeMembers({FilesOf("a")}, {}, {}).at(0).share.limit, 0.3)
      << "also where its pod is not known";
}

TEST_F(ComputeMembersTest, AVariableOfTheContainerLowersItsShare) {
  SetPod("", "60", "50");
  ContainerUsage::RegionFiles files = FilesOf("a");
  files.env = {{"CUDA_DEVICE_SM_LIMIT", "10"}};
  EXPECT_EQ(ComputeMembers({files}, {}, pods_.pods()).at(0).share,
            (limiter::ComputeShare{.request = 0.1, .limit = 0.1}));
}

TEST_F(ComputeMembersTest, AnElasticLimitIsNeverBelowTheGrant) {
  SetPod("", "60");
  EXPECT_EQ(Share().limit, 0.6);
  EXPECT_EQ(Share().request, 0.3);
  SetPod("", "20");
  EXPECT_EQ(Share().limit, 0.3);
}

TEST_F(ComputeMembersTest, AComputeLimitLowersTheGrantAndTheElasticLimit) {
  SetPod("", "60", "50");
  EXPECT_EQ(Share(), (limiter::ComputeShare{.request = 0.3, .limit = 0.5}));
  SetPod("", "60", "GPU-1=20,GPU-2=10");
  EXPECT_EQ(Share(), (limiter::ComputeShare{.request = 0.2, .limit = 0.2}));
  for (const char* text : {"100", "side=10", "0", "nonsense"}) {
    SetPod("", "", text);
    EXPECT_EQ(Share(), (limiter::ComputeShare{.request = 0.3, .limit = 0.3})) << text;
  }
}

TEST_F(ComputeMembersTest, AContainerHasTheClassOfItsPod) {
  SetPod("low");
  EXPECT_EQ(Share().priority, PriorityClass::kLow);
  SetPod("high");
  EXPECT_EQ(Share().priority, PriorityClass::kHigh);
  for (const char* text : {"", "normal", "High", "0"}) {
    SetPod(text);
    EXPECT_EQ(Share().priority, PriorityClass::kNormal) << text;
  }
}

TEST_F(ComputeMembersTest, AWholeGpuIsNotDivided) {
  EXPECT_TRUE(ComputeMembers({FilesOf("a", 1000)}, {}, pods_.pods()).empty());
}

TEST_F(ComputeMembersTest, AShareOfMemoryAloneRequestsNoComputeAndHasNoLimit) {
  SetPod("low", "60", "50");
  const auto members = ComputeMembers({FilesOf("a", 0)}, {}, pods_.pods());
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].share, (limiter::ComputeShare{.priority = PriorityClass::kLow}));
}

TEST_F(ComputeMembersTest, TheUtilizationIsOfTheSameContainerAndGpu) {
  const ContainerUses uses = {
      {.holder = {Uid("uid-b"), "default", "b", "main"}, .uuid = "GPU-1", .utilization = 0.1},
      {.holder = {Uid("uid-a"), "default", "a", "main"}, .uuid = "GPU-2", .utilization = 0.2},
      {.holder = {Uid("uid-a"), "default", "a", "side"}, .uuid = "GPU-1", .utilization = 0.3},
      {.holder = {Uid("uid-a"), "default", "a", "main"}, .uuid = "GPU-1", .utilization = 0.4}};
  EXPECT_EQ(ComputeMembers({FilesOf("a")}, uses, pods_.pods()).at(0).utilization, 0.4);
}

}  // namespace
}  // namespace tessera::agent
