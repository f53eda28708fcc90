// SPDX-License-Identifier: Apache-2.0
#include "src/console/insight.h"

#include <gtest/gtest.h>

#include "src/ledger/testing/objects.h"

namespace tessera::console {
namespace {

using ledger::testing::GpuNode;
using ledger::testing::Whole;

class InsightTest : public ::testing::Test {
 protected:
  InsightTest() : ledger_(ledger::ClusterLedger::Make({}, &clock_).value()) {
    ledger_->SetNode(GpuNode("a", 2));
    ledger_->SetNode(GpuNode("b", 4));
  }
  Json PreviewOf(const WorkloadForm& form, bool with_quota = true) {
    const Manifest manifest = ParseManifest(ManifestOf(form)).value();
    const Result<Json> preview = Preview(*ledger_, manifest, with_quota);
    EXPECT_TRUE(preview.ok()) << preview.status().ToString();
    return *preview;
  }

  FakeClock clock_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
};

TEST_F(InsightTest, ThePreviewCountsNodesThatFit) {
  EXPECT_EQ(PreviewOf({.name = "x", .image = "i", .gpus = 2}).IntAt("fits").value(), 2);
  const Json preview = PreviewOf({.name = "x", .image = "i", .gpus = 3});
  EXPECT_EQ(preview.IntAt("fits").value(), 1);
  EXPECT_EQ(preview.IntAt("nodes").value(), 2);
  const Json& group = preview.Find("groups")->items().at(0);
  EXPECT_EQ(group.StringAt("kind").value(), "too-few");
  // A preview names no nodes.
  EXPECT_EQ(group.Find("names"), nullptr);
}

TEST_F(InsightTest, HeldGpusAreAddedUpForVisibleNamespaces) {
  ledger::testing::Bind(*ledger_, Whole("x", 2), "b");
  ledger::testing::Bind(*ledger_, Whole("y", 1), "a");
  ledger_->SetPod(Whole("waits", 1));
  const Json held = JsonOfHeld(*ledger_, [](const std::string& ns) { return ns == "ns"; });
  ASSERT_EQ(held.items().size(), 1U);
  EXPECT_EQ(held.items()[0].IntAt("pods").value(), 2);
  EXPECT_EQ(held.items()[0].IntAt("milli").value(), 3000);
  EXPECT_GT(held.items()[0].IntAt("bytes").value(), 0);
  EXPECT_TRUE(JsonOfHeld(*ledger_, [](const std::string&) { return false; }).items().empty());
}

TEST_F(InsightTest, ASummarySaysWhyRoomIsNotUsed) {
  const auto summary = [&](int gpus) {
    ledger_->SetPod(Whole("waits", gpus));
    auto query = ledger_->MakeQuery(Whole("waits", gpus)).value();
    return SummaryOf(*ledger_, query);
  };
  EXPECT_EQ(summary(3), "1/2 nodes have room: 1 too few GPUs");
  EXPECT_EQ(summary(5), "0/2 nodes have room: 2 too few GPUs");
  ledger_->SetQuota(placement::ParseQuota(R"({"ns":{"quota":{"A100":1}}})").value());
  EXPECT_EQ(
      summary(3),
      "1/2 nodes have room, but namespace \"ns\" may use 1 GPUs of model A100: 0 used, 1 left, "
      "3 wanted");
  Json out = Json::MakeObject();
  auto query = ledger_->MakeQuery(Whole("waits", 3)).value();
  AddEvaluation(*ledger_, query, true, &out);
  const Json& near = out.Find("near")->items().at(0);
  EXPECT_FALSE(near.BoolAt("fits").value()) << "a quota counts for the nearest nodes, too";
  EXPECT_NE(near.StringAt("text").value().find("may use 1 GPUs"), std::string::npos);
}

TEST_F(InsightTest, CordonedNodesDoNotFit) {
  kube::NodeObject node = GpuNode("b", 4);
  node.unschedulable = true;
  ledger_->SetNode(node);
  const Json preview = PreviewOf({.name = "x", .image = "i", .gpus = 1});
  EXPECT_EQ(preview.IntAt("fits").value(), 1);
  EXPECT_EQ(preview.Find("groups")->items().at(0).StringAt("kind").value(), "cordoned");
}

TEST_F(InsightTest, NodesThatThePodDoesNotTolerateOrSelectDoNotFit) {
  kube::NodeObject node = GpuNode("b", 4);
  node.taints = {{"team", "ml", "NoSchedule"}};
  ledger_->SetNode(node);
  Manifest manifest = ParseManifest(ManifestOf({.name = "x", .image = "i", .gpus = 1})).value();
  manifest.pod.Find("spec")->Set("nodeSelector", ParseJson(R"({"disk":"ssd"})").value());
  const Json selecting = Preview(*ledger_, manifest, false).value();
  EXPECT_EQ(selecting.IntAt("fits").value(), 0);
  EXPECT_EQ(selecting.Find("groups")->items().at(0).StringAt("kind").value(), "node-selector");
  manifest.pod.Find("spec")->Erase("nodeSelector");
  const Json any = Preview(*ledger_, manifest, false).value();
  EXPECT_EQ(any.IntAt("fits").value(), 1);
  EXPECT_EQ(any.Find("groups")->items().at(0).StringAt("kind").value(), "taint");
}

TEST_F(InsightTest, NodesThatDoNotOfferTheResourceDoNotFit) {
  kube::NodeObject node = GpuNode("b", 4);
  node.capacity = {{std::string(names::kResourceGpu), "4"},
                   {std::string(names::kResourceVcudaCore), "0"}};
  ledger_->SetNode(node);
  const auto preview = [&](bool whole) {
    return PreviewOf({.name = "x",
                      .image = "i",
                      .whole = whole,
                      .gpus = 1,
                      .hundredths = 30,
                      .memory_blocks = 4});
  };
  EXPECT_EQ(preview(true).IntAt("fits").value(), 2);
  const Json shares = preview(false);
  EXPECT_EQ(shares.IntAt("fits").value(), 1)
      << "node a reports no capacity yet, so it is not excluded";
  EXPECT_EQ(shares.Find("groups")->items().at(0).StringAt("kind").value(), "not-offered");
}

TEST_F(InsightTest, NodesWithoutEnoughCpuDoNotFit) {
  Manifest manifest = ParseManifest(ManifestOf({.name = "x", .image = "i", .gpus = 1})).value();
  Json& container = manifest.pod.Find("spec")->Find("containers")->items().at(0);
  container.Find("resources")->Set("requests", ParseJson(R"({"cpu":"1000"})").value());
  const Json preview = Preview(*ledger_, manifest, false).value();
  EXPECT_EQ(preview.IntAt("fits").value(), 0);
  EXPECT_EQ(preview.Find("groups")->items().at(0).StringAt("kind").value(), "cpu");
  container.Find("resources")->Erase("requests");
  container.Find("resources")->Find("limits")->Set("cpu", Json::String("1000"));
  EXPECT_EQ(Preview(*ledger_, manifest, false)->IntAt("fits").value(), 0)
      << "the API server takes requests from limits";
}

TEST_F(InsightTest, ThePreviewCountsReplicasThatHaveRoomTogether) {
  const auto room_for = [&](int gpus, int64_t replicas, const std::string& ns) {
    const WorkloadForm form{
        .name = "x", .ns = ns, .image = "i", .gpus = gpus, .replicas = replicas};
    return PreviewOf(form).IntAt("roomFor").value_or(-1);
  };
  EXPECT_EQ(room_for(2, 3, "ns"), 3);
  EXPECT_EQ(room_for(2, 9, "ns"), 3);
  EXPECT_EQ(room_for(3, 2, "ns"), 1);
  EXPECT_EQ(room_for(1, 1, "ns"), -1) << "a single pod has no such field";
  ledger_->SetQuota(placement::ParseQuota(R"({"team":{"quota":{"A100":4}}})").value());
  EXPECT_EQ(room_for(2, 3, "team"), 2);
  EXPECT_TRUE(ledger_->pods().empty());
  EXPECT_EQ(PreviewOf({.name = "y", .image = "i", .gpus = 4}).IntAt("fits").value(), 1);
}

TEST_F(InsightTest, ThePreviewShowsTheQuota) {
  ledger_->SetQuota(placement::ParseQuota(R"({"team":{"quota":{"A100":1}}})").value());
  const Json preview = PreviewOf({.name = "x", .ns = "team", .image = "i", .gpus = 2});
  EXPECT_EQ(preview.IntAt("fits").value(), 0);
  EXPECT_EQ(preview.Find("groups")->items().at(0).StringAt("kind").value(), "quota");
  EXPECT_EQ(preview.StringAt("quota").value(), "A100: 0 used, 1 left");
}

TEST_F(InsightTest, PreviewWithoutRightsDoesNotShowTheQuota) {
  const WorkloadForm form{.name = "x", .ns = "team", .image = "i", .gpus = 2};
  const std::string without_any = PreviewOf(form, false).Serialize();
  ledger_->SetQuota(placement::ParseQuota(R"({"team":{"quota":{"A100":1}}})").value());
  EXPECT_EQ(PreviewOf(form, false).Serialize(), without_any);
  EXPECT_EQ(without_any.find("quota"), std::string::npos);
}

TEST_F(InsightTest, ExplainingAPodLeavesTheLedgerUnchanged) {
  const kube::PodObject bound = ledger::testing::Bind(*ledger_, Whole("x", 2), "a");
  const Json explained = ExplainPod(*ledger_, bound.meta.uid, true);
  EXPECT_EQ(explained.StringAt("node").value(), "a");
  EXPECT_EQ(explained.IntAt("fits").value(), 2);
  // Its GPUs are held again.
  EXPECT_EQ(PreviewOf({.name = "y", .image = "i", .gpus = 2}).IntAt("fits").value(), 1);
}

TEST_F(InsightTest, UsersWithoutRightsGetNoNamesOfNodes) {
  kube::PodObject waiting = Whole("x", 3);
  ledger_->SetPod(waiting);
  const Json all = ExplainPod(*ledger_, waiting.meta.uid, true);
  EXPECT_EQ(all.Find("groups")->items().at(0).Find("names")->items().at(0).string_value(), "a");
  const std::string without_details = ExplainPod(*ledger_, waiting.meta.uid, false).Serialize();
  EXPECT_EQ(without_details.find("\"names\""), std::string::npos) << without_details;
  EXPECT_EQ(without_details.find("\"example\""), std::string::npos) << without_details;
}

TEST_F(InsightTest, QuotasAreShownForVisibleNamespaces) {
  ledger_->SetQuota(
      placement::ParseQuota(R"({"team":{"quota":{"A100":4}},"other":{"quota":{"A100":1}}})")
          .value());
  const Json lines = JsonOfQuotas(*ledger_, [](const std::string& ns) { return ns == "team"; });
  ASSERT_EQ(lines.items().size(), 1U);
  EXPECT_EQ(lines.items()[0].IntAt("limitMilli").value(), 4000);
}

TEST_F(InsightTest, AModelWithoutAQuotaIsShownWhileItIsInUse) {
  ledger::testing::Bind(*ledger_, Whole("x", 2), "a");  // in namespace "ns"
  ledger_->SetQuota(placement::ParseQuota(R"({"ns":{"quota":{"H100":4}}})").value());
  const Json lines = JsonOfQuotas(*ledger_, [](const std::string&) { return true; });
  ASSERT_EQ(lines.items().size(), 2U);
  EXPECT_EQ(lines.items()[1].IntAt("usedMilli").value(), 2000);
  EXPECT_EQ(lines.items()[1].IntAt("limitMilli").value(), 0);
}

}  // namespace
}  // namespace tessera::console
