// SPDX-License-Identifier: Apache-2.0
#include "src/placement/quota.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;
using testing::MakeNode;

QuotaCharge Of(std::string name, std::string model, int64_t milli, std::string pool = "public") {
  return {std::move(name), std::move(model), std::move(pool), MilliGpu(milli)};
}

Quota Make(std::string_view json) {
  Quota quota;
  quota.SetConfig(*ParseQuota(json));
  return quota;
}

constexpr std::string_view kSample = R"({"ml":{"quota":{"M40":8,"P100":2},"pool":["public"]}})";

TEST(QuotaTest, ReadsTheFormatOfGpuAdmission) {
  const QuotaConfig config = *ParseQuota(kSample);
  ASSERT_EQ(config.size(), 1u);
  const NamespaceQuota& quota = config.find("ml")->second;
  EXPECT_EQ(quota.pools, std::vector<std::string>{"public"});
  EXPECT_EQ(*quota.limits, (std::vector<QuotaLimit>{{"M40", 8}, {"P100", 2}}));
  EXPECT_TRUE(ParseQuota("{}")->empty());
}

TEST(QuotaTest, NamesThePlaceOfAnInvalidQuota) {
  const auto why = [](std::string_view json) { return ParseQuota(json).status().message(); };
  EXPECT_EQ(why(R"({"ml":{"quota":{"M40":1.5}}})"),
            "GPU quota: namespace \"ml\" quota.M40: must be a whole number of GPUs, not 1.5");
  EXPECT_EQ(why(R"({"ml":{"quota":{"M40":-1}}})"),
            "GPU quota: namespace \"ml\" quota.M40: must be 0 to 1000000 GPUs, not -1");
  EXPECT_EQ(why(R"({"ml":{"quota":{"M40":1000001}}})"),
            "GPU quota: namespace \"ml\" quota.M40: must be 0 to 1000000 GPUs, not 1000001");
  EXPECT_EQ(why(R"({"ml":{"quota":{"M40":99999999999999999999}}})"),
            "GPU quota: namespace \"ml\" quota.M40: must be a whole number of GPUs, not "
            "99999999999999999999");
  EXPECT_EQ(why(R"({"ml":{"quota":{"M40":"8"}}})"),
            "GPU quota: namespace \"ml\" quota.M40: must be a whole number of GPUs, not \"8\"");
  EXPECT_EQ(why(R"({"ml":{"quotas":{"M40":8}}})"),
            "GPU quota: namespace \"ml\": \"quotas\" is neither \"quota\" nor \"pool\"");
  EXPECT_EQ(why(R"({"ml":{},"ml":{}})"), "GPU quota: namespaces: \"ml\" occurs twice");
  EXPECT_EQ(why(R"({"ml":{"quota":{"M40":1,"M40":2}}})"),
            "GPU quota: namespace \"ml\" quota: \"M40\" occurs twice");
  EXPECT_EQ(why(R"({"ml":{"pool":[""]}})"),
            "GPU quota: namespace \"ml\" pool: must hold names of pools, not \"\"");
  for (const auto json : {"", "[]", "null", R"({"ml":3})", R"({"ml":{"quota":[]}})", R"({"":{}})",
                          R"({"ml":{"pool":"public"}})", R"({"ml":{"quota":null}})"}) {
    EXPECT_EQ(ParseQuota(json).status().code(), Code::kInvalidArgument) << json;
  }
}

TEST(QuotaTest, ANamespaceWithoutAnEntryIsNotLimited) {
  Quota quota = Make(kSample);
  EXPECT_TRUE(quota.Check(Of("other", "M40", 1'000'000, "private")).ok());
  EXPECT_TRUE(quota.Check(Of("ml", "M40", 8000)).ok());
  EXPECT_FALSE(quota.Check(Of("ml", "M40", 8001)).ok());
  EXPECT_TRUE(quota.Check(Of("ml", "V100", 0, "private")).ok()) << "a pod without GPUs";
}

TEST(QuotaTest, ReportsUsedAndRemainingAmounts) {
  Quota quota = Make(kSample);
  const QuotaCharge first = Of("ml", "M40", 7300);
  ASSERT_TRUE(quota.Charge({&first, 1}).ok());
  const Status status = quota.Check(Of("ml", "M40", 1000));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "namespace \"ml\" may use 8 GPUs of model M40: 7.3 used, 0.7 left, 1 wanted");
  EXPECT_EQ(quota.Check(Of("ml", "V100", 1)).message(),
            "namespace \"ml\" has no quota for GPU model \"V100\": it has a quota for M40, P100");
  EXPECT_EQ(quota.Check(Of("ml", "M40", 1, "private")).message(),
            "namespace \"ml\" may not use GPUs of pool \"private\": only of public");
}

TEST(QuotaTest, ALineMatchesEveryProductOfItsName) {
  Quota quota = Make(R"({"ml":{"quota":{"A100":2,"NVIDIA-A100-SXM4-80GB":1}}})");
  const QuotaCharge small = Of("ml", "NVIDIA A100-PCIE-40GB", 1000);
  const QuotaCharge large = Of("ml", "NVIDIA A100-SXM4-80GB", 1000);
  ASSERT_TRUE(quota.Charge({&large, 1}).ok());
  EXPECT_FALSE(quota.Check(large).ok()) << "the line of its exact name is full";
  ASSERT_TRUE(quota.Charge({&small, 1}).ok());
  EXPECT_FALSE(quota.Check(small).ok()) << "the line of both is full";
  EXPECT_EQ(quota.Used("ml", "a100"), MilliGpu(2000));
}

TEST(QuotaTest, AGangIsChargedAllOrNothing) {
  Quota quota = Make(kSample);
  const std::vector<QuotaCharge> gang = {Of("ml", "P100", 1000), Of("ml", "M40", 500),
                                         Of("ml", "P100", 1000)};
  ASSERT_TRUE(quota.Charge(gang).ok());
  const std::vector<QuotaCharge> more = {Of("ml", "M40", 500), Of("ml", "P100", 1)};
  EXPECT_FALSE(quota.Charge(more).ok());
  EXPECT_EQ(quota.Used("ml", "M40"), MilliGpu(500));
  ASSERT_TRUE(quota.Refund(gang).ok());
  EXPECT_EQ(quota.Used("ml", "P100"), MilliGpu(0));
  EXPECT_EQ(quota.Refund(gang).code(), Code::kFailedPrecondition);
}

TEST(QuotaTest, RunningPodsStayChargedBelowALowerLimit) {
  Quota quota = Make(kSample);
  const QuotaCharge running = Of("ml", "M40", 8000);
  quota.ChargeUnchecked({&running, 1});
  quota.SetConfig(*ParseQuota(R"({"ml":{"quota":{"M40":4}}})"));
  EXPECT_EQ(quota.Check(Of("ml", "M40", 1)).message(),
            "namespace \"ml\" may use 4 GPUs of model M40: 8 used, 0 left, 0.001 wanted");
  EXPECT_EQ(quota.TextOfLines("ml"), "M40: 8 used, 0 left");
  EXPECT_EQ(quota.TextOfLines("web"), "");
  ASSERT_TRUE(quota.Refund({&running, 1}).ok());
  EXPECT_TRUE(quota.Check(Of("ml", "M40", 4000)).ok());
}

TEST(QuotaTest, APodIsChargedForItsModelsAndSlices) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 4);
  spec.pool = "public";
  spec.gpus[1].model = "V100";
  spec.gpus[2].mig_profile = spec.gpus[3].mig_profile = "2g.20gb";
  spec.gpus[3].model = "A30";
  const NodeId node = *cluster.AddNode(spec);
  Demand demand = MakeDemand(2, 1000);
  Pick pick{{0b11}};
  EXPECT_EQ(ChargesOf("ml", cluster, node, demand, pick),
            (std::vector{Of("ml", "A100", 1000), Of("ml", "V100", 1000)}));
  demand.gpu_demands[0].kind = *cluster.KindOf("2g.20gb");
  pick.masks[0] = 0b1100;
  EXPECT_EQ(ChargesOf("ml", cluster, node, demand, pick),
            (std::vector{Of("ml", "A100", 285), Of("ml", "A30", 500)}));
  EXPECT_EQ(EstimatedCharge("ml", cluster, demand, "A100", GiB(80), "public"),
            Of("ml", "A100", 570));
  EXPECT_TRUE(ChargesOf("ml", cluster, node, MakeDemand(0, 0), {}).empty());
  EXPECT_EQ(EstimatedCharge("ml", cluster, MakeDemand(3, 250), "A100", GiB(80), "p").amount,
            MilliGpu(750));
}

TEST(QuotaTest, AShareOfMemoryIsChargedItsFractionOfTheGpu) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 1);
  spec.gpus[0].memory = GiB(80);
  const NodeId node = *cluster.AddNode(spec);
  Demand demand = MakeDemand(1, 0);
  demand.gpu_demands[0].bytes = GiB(8);
  EXPECT_EQ(ChargesOf("ml", cluster, node, demand, {{0b1}})[0].amount, MilliGpu(100));
  EXPECT_EQ(EstimatedCharge("ml", cluster, demand, "A100", GiB(24), "p").amount, MilliGpu(334));
  demand.gpu_demands[0].milli = MilliGpu(300);
  EXPECT_EQ(ChargesOf("ml", cluster, node, demand, {{0b1}})[0].amount, MilliGpu(300));
}

TEST(QuotaTest, UseNeverExceedsTheLimitAndRefundsRestoreItExactly) {
  std::mt19937 random(21);
  const char* models[] = {"M40", "P100"};
  Quota quota = Make(kSample);
  std::vector<std::vector<QuotaCharge>> held;
  std::map<std::string, int64_t> sums;
  int rejected = 0;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 && !held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      ASSERT_TRUE(quota.Refund(held.back()).ok());
      for (const QuotaCharge& charge : held.back()) sums[charge.model] -= charge.amount.count();
      held.pop_back();
    } else {
      std::vector<QuotaCharge> charges;
      for (size_t i = 0; i < 1 + random() % 3; ++i) {
        charges.push_back(Of("ml", models[random() % 2], static_cast<int64_t>(random() % 2500)));
      }
      std::map<std::string, int64_t> after = sums;
      for (const QuotaCharge& charge : charges) after[charge.model] += charge.amount.count();
      const bool fits = after["M40"] <= 8000 && after["P100"] <= 2000;
      ASSERT_EQ(quota.Check(charges).ok(), fits);
      ASSERT_EQ(quota.Charge(charges).ok(), fits);
      rejected += !fits;
      if (!fits) continue;
      held.push_back(charges);
      sums = after;
    }
    for (const char* model : models) ASSERT_EQ(quota.Used("ml", model).count(), sums[model]);
    ASSERT_LE(sums["M40"], 8000);
    ASSERT_LE(sums["P100"], 2000);
  }
  EXPECT_GT(rejected, 1000);
}

TEST(QuotaTest, ZeroAndTheMaximumAreValidQuotas) {
  const QuotaConfig config = *ParseQuota(R"({"ml":{"quota":{"M40":0,"P100":1000000}}})");
  EXPECT_EQ(*config.find("ml")->second.limits,
            (std::vector<QuotaLimit>{{"M40", 0}, {"P100", 1000000}}));
}

TEST(QuotaTest, AShareOfAGpuOfUnknownMemoryIsChargedItsCompute) {
  const Cluster cluster;
  EXPECT_EQ(EstimatedCharge("ml", cluster, MakeDemand(1, 0, GiB(8)), "A100", Bytes(0), "p").amount,
            MilliGpu(0));
}

}  // namespace
}  // namespace tessera::placement
