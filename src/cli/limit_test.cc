// SPDX-License-Identifier: Apache-2.0
#include "src/cli/limit.h"

#include <gtest/gtest.h>

#include "src/cli/gpu_pods.h"
#include "src/cli/testing/fake_cluster.h"

namespace tessera::cli {
namespace {

class LimitTest : public ::testing::Test {
 protected:
  LimitTest() { FillSample(cluster_); }
  const ledger::PodEntry& Entry(const std::string& name) {
    for (const auto& [uid, pod] : cluster_.ledger().pods()) {
      if (pod.request.name == name) return pod;
    }
    ADD_FAILURE() << name;
    return cluster_.ledger().pods().begin()->second;
  }
  std::string Error(const std::string& pod, const std::string& memory,
                    const std::string& compute = "") {
    const auto patch = LimitPatch(Entry(pod), {memory, compute});
    EXPECT_EQ(patch.status().code(), Code::kInvalidArgument) << memory << compute;
    return patch.status().message();
  }
  testing::FakeCluster cluster_;
};

TEST_F(LimitTest, ThePatchSetsTheAnnotationOnlyOnThePodWithThisUid) {
  const auto patch = LimitPatch(Entry("nginx"), {"4Gi", ""});
  ASSERT_TRUE(patch.ok()) << patch.status().ToString();
  EXPECT_EQ(patch->Serialize(), R"({"metadata":{"uid":"uid-default-nginx",)"
                                R"("annotations":{"tessera.dev/memory-limit":"4Gi"}}})");
  EXPECT_EQ(LimitPatch(Entry("nginx"), {"none", ""})->Serialize(),
            R"({"metadata":{"uid":"uid-default-nginx",)"
            R"("annotations":{"tessera.dev/memory-limit":null}}})");
  EXPECT_EQ(LimitText(Entry("nginx"), {"main=4Gi", ""}),
            "Container main may use 4 GiB of GPU-big-1.\n");
  EXPECT_EQ(LimitText(Entry("nginx"), {"none", ""}),
            "Container main may use 5 GiB of GPU-big-1.\n");
  EXPECT_TRUE(LimitPatch(Entry("nginx"), {"5Gi", ""}).ok());
  EXPECT_TRUE(LimitPatch(Entry("nginx"), {"GPU-big-1=1Gi", ""}).ok());
}

TEST_F(LimitTest, RejectsWhatTheAgentWouldReject) {
  EXPECT_EQ(
      Error("nginx", "6Gi"),
      "--memory: container main was granted at most 5 GiB of GPU-big-1, and a limit can only lower "
      "that: create the pod again with a larger request");
  EXPECT_NE(Error("train", "6Gi").find("only shares can be limited"), std::string::npos);
  EXPECT_NE(Error("nginx", "side=1Gi").find("\"side\" is neither a container"), std::string::npos);
  EXPECT_NE(Error("nginx", "8 Gi").find("--memory: \"8 Gi\""), std::string::npos);
  EXPECT_NE(Error("nginx", "").find("want an amount"), std::string::npos);
  EXPECT_EQ(
      Error("nginx", "", "40"),
      "--compute: container main was granted at most 30 hundredths of the time of GPU-big-1, and "
      "a limit can only lower that: create the pod again with a larger request");
  EXPECT_NE(Error("nginx", "4Gi", "0").find("--compute: \"0\""), std::string::npos);
  EXPECT_NE(Error("binpack-1", "", "10").find("its compute cannot be limited"), std::string::npos);
}

TEST_F(LimitTest, LowersComputeAloneAndWithMemory) {
  const auto patch = LimitPatch(Entry("nginx"), {"4Gi", "main=20"});
  ASSERT_TRUE(patch.ok()) << patch.status().ToString();
  EXPECT_EQ(patch->Serialize(),
            R"({"metadata":{"uid":"uid-default-nginx","annotations":{)"
            R"("tessera.dev/memory-limit":"4Gi","tessera.dev/compute-limit":"main=20"}}})");
  EXPECT_EQ(LimitText(Entry("nginx"), {"4Gi", "main=20"}),
            "Container main may use 4 GiB and 20 hundredths of the time of GPU-big-1.\n");
  EXPECT_EQ(LimitText(Entry("binpack-1"), {"", "none"}),
            "Nothing changes: no container of the pod has such a limit.\n");
  EXPECT_EQ(LimitText(Entry("nginx"), {"", "none"}),
            "Container main may use 30 hundredths of the time of GPU-big-1.\n");
}

TEST_F(LimitTest, ReportsMemoryThatAContainerHoldsBeyondItsNewLimit) {
  const ContainerUse use{.container = "main", .uuid = "GPU-big-1", .used = Bytes(int64_t{3} << 30)};
  EXPECT_EQ(LimitText(Entry("nginx"), {"2Gi", ""}, {use}),
            "Container main may use 2 GiB of GPU-big-1.\n"
            "It holds 3 GiB now: its allocations fail until it holds less.\n");
  EXPECT_EQ(LimitText(Entry("nginx"), {"4Gi", ""}, {use}),
            "Container main may use 4 GiB of GPU-big-1.\n");
}

TEST_F(LimitTest, SaysWhyAPodHasNoShare) {
  kube::PodObject pod = testing::PodIn("ml", "train", {{names::kResourceGpuMem, "8"}});
  EXPECT_EQ(ReasonForNoShare(pod), "") << "it waits for its share";
  pod.phase = kube::PodPhase::kFailed;
  EXPECT_EQ(ReasonForNoShare(pod),
            "pod ml/train has ended (phase Failed): it no longer holds a share of a GPU");
  pod.phase = kube::PodPhase::kSucceeded;
  EXPECT_EQ(ReasonForNoShare(pod),
            "pod ml/train has ended (phase Succeeded): it no longer holds a share of a GPU");
  EXPECT_EQ(ReasonForNoShare(testing::PodIn("ml", "plain", {})),
            "pod ml/plain requests no share of a GPU");
  EXPECT_EQ(ReasonForNoShare(testing::PodIn("ml", "whole", {{names::kResourceGpu, "1"}})),
            "pod ml/whole requests whole GPUs: only shares are limited");
}

TEST_F(LimitTest, NoLimitIsWrittenForAContainerWithoutLimiter) {
  const ContainerUse limited{.node = "n1", .container = "main", .uuid = "GPU-1"};
  EXPECT_TRUE(CheckLimited({limited}, {"1Gi", ""}).ok());
  ContainerUse unlimited = limited;
  unlimited.limited = false;
  const Status status = CheckLimited({limited, unlimited}, {"1Gi", ""});
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("container main has no limiter on GPU-1"), std::string::npos);
  EXPECT_FALSE(CheckLimited({unlimited}, {"", "main=20"}).ok());
  EXPECT_TRUE(CheckLimited({unlimited}, {"side=1Gi", "GPU-2=20"}).ok()) << "for others only";
  EXPECT_TRUE(CheckLimited({unlimited}, {"none", ""}).ok()) << "an annotation can be removed";
}

}  // namespace
}  // namespace tessera::cli
