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
    Manifest manifest{.object = ManifestOf(form), .ns = form.ns, .name = form.name};
    manifest.pod = manifest.object;
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

TEST_F(InsightTest, CordonedNodesDoNotFit) {
  kube::NodeObject node = GpuNode("b", 4);
  node.unschedulable = true;
  ledger_->SetNode(node);
  const Json preview = PreviewOf({.name = "x", .image = "i", .gpus = 1});
  EXPECT_EQ(preview.IntAt("fits").value(), 1);
  EXPECT_EQ(preview.Find("groups")->items().at(0).StringAt("kind").value(), "cordoned");
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

TEST_F(InsightTest, ExplainingAPodLeavesTheLedgerAsItWas) {
  const kube::PodObject bound = ledger::testing::Bind(*ledger_, Whole("x", 2), "a");
  const Json explained = ExplainPod(*ledger_, bound.meta.uid, true);
  EXPECT_EQ(explained.StringAt("node").value(), "a");
  EXPECT_EQ(explained.IntAt("fits").value(), 2);
  // Its GPUs are held again.
  EXPECT_EQ(PreviewOf({.name = "y", .image = "i", .gpus = 2}).IntAt("fits").value(), 1);
}

TEST_F(InsightTest, PeopleWithoutRightsGetNoNamesOfNodes) {
  kube::PodObject waiting = Whole("x", 3);
  ledger_->SetPod(waiting);
  const Json all = ExplainPod(*ledger_, waiting.meta.uid, true);
  EXPECT_EQ(all.Find("groups")->items().at(0).Find("names")->items().at(0).string_value(), "a");
  const std::string few = ExplainPod(*ledger_, waiting.meta.uid, false).Serialize();
  EXPECT_EQ(few.find("\"names\""), std::string::npos) << few;
  EXPECT_EQ(few.find("\"example\""), std::string::npos) << few;
}

TEST_F(InsightTest, QuotasAreShownForVisibleNamespaces) {
  ledger_->SetQuota(
      placement::ParseQuota(R"({"team":{"quota":{"A100":4}},"other":{"quota":{"A100":1}}})")
          .value());
  const Json lines = JsonOfQuotas(*ledger_, [](const std::string& ns) { return ns == "team"; });
  ASSERT_EQ(lines.items().size(), 1U);
  EXPECT_EQ(lines.items()[0].IntAt("limitMilli").value(), 4000);
}

}  // namespace
}  // namespace tessera::console
