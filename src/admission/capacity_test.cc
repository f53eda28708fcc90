// SPDX-License-Identifier: Apache-2.0
#include "src/admission/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/ledger/testing/objects.h"

namespace tessera::admission {
namespace {

using ledger::testing::GpuNode;
using ledger::testing::GpuPod;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Limits = std::map<std::string_view, std::string>;

class CapacityTest : public ::testing::Test {
 protected:
  std::vector<std::string> Warnings(const Limits& limits, const std::string& models = "",
                                    const std::string& uuids = "") const {
    kube::PodObject pod = GpuPod("p", limits);
    pod.meta.ns = "ml";
    if (!models.empty()) pod.meta.annotations["tessera.dev/gpu-models"] = models;
    if (!uuids.empty()) pod.meta.annotations["tessera.dev/gpu-uuids"] = uuids;
    return WhyNeverFits(ledger::PodRequestOf(pod, {}).value(), CapacityOf(*ledger_));
  }
  void SetQuota(std::string_view json) { ledger_->SetQuota(placement::ParseQuota(json).value()); }

  FakeClock clock_;
  std::unique_ptr<ledger::ClusterLedger> ledger_ = ledger::ClusterLedger::Make({}, &clock_).value();
};

TEST_F(CapacityTest, AnEmptyClusterGivesNoWarning) {
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "100"}}), IsEmpty());
  EXPECT_THAT(Warnings({{"nvidia.com/mig-1g.10gb", "1"}}), IsEmpty());
}

TEST_F(CapacityTest, MemoryOfOneGpuIsComparedWithTheLargest) {
  ledger_->SetNode(GpuNode("small", 8, "16Gi"));
  ledger_->SetNode(GpuNode("large", 1, "80Gi"));
  EXPECT_THAT(Warnings({{"aliyun.com/gpu-mem", "80"}}), IsEmpty());
  EXPECT_THAT(Warnings({{"aliyun.com/gpu-mem", "81"}}),
              ElementsAre(AllOf(HasSubstr("81 GiB"), HasSubstr("80 GiB"))));
  EXPECT_THAT(Warnings({{"tencent.com/vcuda-core", "10"}, {"tencent.com/vcuda-memory", "321"}}),
              ElementsAre(AllOf(HasSubstr("82176 MiB"), HasSubstr("81920 MiB"))));
}

TEST_F(CapacityTest, AShareOfAllMemoryOfTheLargestGpuFits) {
  ledger_->SetNode(GpuNode("large", 1, "80Gi"));
  EXPECT_THAT(Warnings({{"tencent.com/vcuda-core", "10"}, {"tencent.com/vcuda-memory", "320"}}),
              IsEmpty());
}

TEST_F(CapacityTest, RoundsTheMemoryOfAGpuDownToWholeGiB) {
  ledger_->SetNode(GpuNode("h200", 8, "143771Mi"));
  EXPECT_THAT(Warnings({{"aliyun.com/gpu-mem", "140"}}), IsEmpty());
  EXPECT_THAT(Warnings({{"aliyun.com/gpu-mem", "141"}}),
              ElementsAre(AllOf(HasSubstr("141 GiB"), HasSubstr("140 GiB"))));
}

TEST_F(CapacityTest, WholeGpusAreComparedWithTheLargestNode) {
  ledger_->SetNode(GpuNode("a", 4));
  ledger_->SetNode(GpuNode("b", 2));
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "4"}}), IsEmpty());
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "5"}}),
              ElementsAre(HasSubstr("no node has more than 4")));
  EXPECT_THAT(Warnings({{"tencent.com/vcuda-core", "500"}}),
              ElementsAre(HasSubstr("5 whole GPUs")));
}

TEST_F(CapacityTest, GpusOfDifferentModelsDoNotAddUpAcrossNodes) {
  ClusterCapacity capacity{.most_on_node = 4};
  capacity.models["NVIDIA A100-SXM4-80GB"] = {.largest_memory = GiB(80), .most_on_node = 4};
  capacity.models["Tesla T4"] = {.largest_memory = GiB(15), .most_on_node = 3};
  const auto warnings = [&](const char* gpus) {
    return WhyNeverFits(ledger::PodRequestOf(GpuPod("p", {{"nvidia.com/gpu", gpus}}), {}).value(),
                        capacity);
  };
  EXPECT_THAT(warnings("4"), IsEmpty());
  EXPECT_THAT(warnings("5"), ElementsAre(HasSubstr("no node has more than 4")));
}

TEST_F(CapacityTest, ComparesARequestWithTheQuotaOfTheModelsThatItAllows) {
  ledger_->SetNode(GpuNode("a", 4));
  SetQuota(R"({"ml":{"quota":{"A100":2}}})");
  for (const char* models : {"A100", "a100", "H100,A100"}) {
    EXPECT_THAT(Warnings({{"nvidia.com/gpu", "3"}}, models),
                ElementsAre(HasSubstr("may use 2 GPUs of model A100")))
        << models;
  }
}

TEST_F(CapacityTest, NamesAMissingModelAndTheModelsOfTheCluster) {
  ledger_->SetNode(GpuNode("a", 4));
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "1"}}, "h100,A100"), IsEmpty());
  EXPECT_THAT(
      Warnings({{"nvidia.com/gpu", "1"}}, "H100,B200"),
      ElementsAre("no GPU of the cluster has one of the models H100, B200; the cluster has A100"));
}

TEST_F(CapacityTest, NamesGpusThatTheClusterDoesNotHave) {
  ledger_->SetNode(GpuNode("a", 4));
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "1"}}, "", "GPU-a-3,GPU-gone"), IsEmpty());
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "1"}}, "", "GPU-gone,GPU-lost"),
              ElementsAre("the cluster has no GPU GPU-gone, GPU-lost"));
}

TEST_F(CapacityTest, NamesAMissingMigProfile) {
  ledger_->SetNode(GpuNode("a", 4));
  EXPECT_THAT(Warnings({{"nvidia.com/mig-1g.10gb", "1"}}),
              ElementsAre(HasSubstr("MIG slice 1g.10gb")));
}

TEST_F(CapacityTest, WarnsOfAQuotaSmallerThanTheRequest) {
  ledger_->SetNode(GpuNode("a", 4));
  SetQuota(R"({"ml":{"quota":{"A100":2}},"web":{"quota":{}}})");
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "2"}}), IsEmpty());
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "3"}}),
              ElementsAre(AllOf(HasSubstr("may use 2 GPUs of model A100"), HasSubstr("3 wanted"))));
  kube::NodeObject t4 = GpuNode("b", 4);
  t4.meta.labels["gaia.tencent.com/gpu-model"] = "T4";
  ledger_->SetNode(t4);
  SetQuota(R"({"ml":{"quota":{"A100":2,"T4":1}}})");
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "2"}}), IsEmpty());
  EXPECT_THAT(
      Warnings({{"nvidia.com/gpu", "3"}}),
      ElementsAre(AllOf(HasSubstr("2 GPUs of model A100"), HasSubstr("1 GPUs of model T4"))));
  ledger_->RemoveNode("b");
  SetQuota(R"({"ml":{"quota":{"H100":2}}})");
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "1"}}), ElementsAre(HasSubstr("has no quota")));
  SetQuota(R"({"ml":{"pool":["private"]}})");
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "1"}}), ElementsAre(HasSubstr("private")));
}

TEST_F(CapacityTest, AnExhaustedQuotaGivesNoWarning) {
  ledger_->SetNode(GpuNode("a", 4));
  SetQuota(R"({"ml":{"quota":{"A100":2}}})");
  kube::PodObject pod = GpuPod("running", {{"nvidia.com/gpu", "2"}});
  pod.meta.ns = "ml";
  const auto query = ledger_->MakeQuery(pod);
  ASSERT_TRUE(ledger_->Assume(*query, "a", std::chrono::seconds(30)).ok());
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "2"}}), IsEmpty());
  // The warning about a pod that can never be placed includes the current use.
  EXPECT_THAT(Warnings({{"nvidia.com/gpu", "3"}}),
              ElementsAre(HasSubstr("2 GPUs of model A100: 2 used, 0 left, 3 wanted")));
}

}  // namespace
}  // namespace tessera::admission
