// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/cli/testing/fake_cluster.h"

namespace tessera::cli {
namespace {

using testing::FakeCluster;
using testing::PodIn;

class ExplainTest : public ::testing::Test {
 protected:
  ExplainTest() { FillSample(cluster_); }
  std::string Explained(const kube::PodObject& pod) {
    const std::string before = ShowGpus(cluster_.view(), "", {}).value();
    std::string text = Explain(cluster_.ledger(), pod, {}).value();
    EXPECT_EQ(ShowGpus(cluster_.view(), "", {}).value(), before) << "a query changes nothing";
    return text;
  }
  FakeCluster cluster_;
};

TEST_F(ExplainTest, ShowsThePodsGpusAndTheScoresOfNodes) {
  const std::string text = Explained(cluster_.Place(
      PodIn("default", "web",
            {{names::kResourceVcudaCore, "30"}, {names::kResourceVcudaMemory, "20"}}),
      "big", 3, 300, GiB(5)));
  EXPECT_EQ(text, R"(Pod default/web requests vcuda-core: 30, vcuda-memory: 20 and is on node big.

  CONTAINER   GPU   MODEL   SHARE            UUID
  main        3     A100    0.3 GPU, 5 GiB   GPU-big-3

Current scores of nodes by policy Tessera, without this pod:
  RANK   NODE         SCORE   MADE OF
  1/2    big (here)   300     waste avoided 300
  2/2    mini         -687    waste avoided -687
)");
}

TEST_F(ExplainTest, ShowsPerGpuWhyAPodWaits) {
  const std::string text =
      Explained(cluster_.Add(PodIn("ml", "two", {{names::kResourceGpu, "2"}})));
  EXPECT_EQ(text, R"(Pod ml/two requests gpu: 2 and waits.
  0/3 nodes have room: 1 too few GPUs, 1 insufficient free GPUs, 1 unhealthy GPUs.

Nodes closest to having room:
  big: 2 GPUs wanted, 1 of 4 free: 1 held whole, 2 shared
    GPU   WHY NOT
    0     held whole by a pod (ml/train)
    1     a whole GPU wanted, but pods have parts of it; 0.7 GPU free (default/nginx)
    2     a whole GPU wanted, but pods have parts of it; 1 GPU free (default/binpack-1, web/binpack-2)
    3     fits
  mini: 2 GPUs wanted, 1 of 1 free
    GPU   WHY NOT
    0     fits
)");
}

TEST_F(ExplainTest, NamesTheQuotaBeforeNodesWithoutRoom) {
  cluster_.ledger().SetQuota(placement::ParseQuota(R"({"ml":{"quota":{"A100":2}}})").value());
  const kube::PodObject& pod = cluster_.Add(PodIn("ml", "next", {{names::kResourceGpu, "9"}}));
  const std::string text = Explained(pod);
  EXPECT_TRUE(text.starts_with(R"(Pod ml/next requests gpu: 9 and waits.
  Its quota does not allow it on any node: namespace "ml" may use 2 GPUs of model A100: 1 used, 1 left, 9 wanted.
  0/3 nodes have room: 3 too few GPUs.
)")) << text;
  const std::string json = Explain(cluster_.ledger(), pod, {.format = OutputFormat::kJson}).value();
  EXPECT_TRUE(ParseJson(json)->BoolAt("overQuota").value());
}

TEST_F(ExplainTest, ANodeOfAnotherModelDoesNotHideTheQuota) {
  kube::NodeObject other = ledger::testing::GpuNode("other", 1);
  other.meta.labels[std::string(names::kLabelLegacyGpuModel)] = "T4";
  cluster_.Add(other);
  cluster_.ledger().SetQuota(
      placement::ParseQuota(R"({"ml":{"quota":{"A100":1,"T4":9}}})").value());
  const std::string text =
      Explained(cluster_.Add(PodIn("ml", "next", {{names::kResourceGpu, "1"}})));
  EXPECT_EQ(text.find("does not allow it on any node"), std::string::npos) << text;
  EXPECT_NE(text.find("The quota rejects 2 nodes with room"), std::string::npos) << text;
}

TEST_F(ExplainTest, ShowsTheRemainingQuota) {
  cluster_.ledger().SetQuota(placement::ParseQuota(R"({"ml":{"quota":{"A100":1}}})").value());
  const std::string text =
      Explained(cluster_.Add(PodIn("ml", "next", {{names::kResourceGpu, "1"}})));
  EXPECT_EQ(text, R"(Pod ml/next requests gpu: 1 and waits.
  Its quota does not allow it on any node: namespace "ml" may use 1 GPUs of model A100: 1 used, 0 left, 1 wanted.
  3/3 nodes have room.
  kube-scheduler leaves out 1 node with room (old): node is cordoned.

Quota of namespace ml, without this pod:
  NAMESPACE   MODEL   USED   LEFT   LIMIT   POOLS
  ml          A100    1      0      1       any
)");
}

TEST_F(ExplainTest, ShowsForEachModelWhyTheQuotaRejectsIt) {
  kube::NodeObject other = ledger::testing::GpuNode("other", 1);
  other.meta.labels[std::string(names::kLabelLegacyGpuModel)] = "T4";
  cluster_.Add(other);
  cluster_.ledger().SetQuota(placement::ParseQuota(R"({"ml":{"quota":{"A100":1}}})").value());
  const kube::PodObject& pod = cluster_.Add(PodIn("ml", "next", {{names::kResourceGpu, "1"}}));
  const std::string text = Explained(pod);
  EXPECT_NE(text.find("does not allow it on any node: "), std::string::npos) << text;
  EXPECT_NE(text.find("A100: 1 used, 0 left, 1 wanted"), std::string::npos) << text;
  EXPECT_NE(text.find("GPU model \"T4\": it has a quota for A100; namespace"), std::string::npos)
      << text;
}

TEST_F(ExplainTest, ShowsNodesThatFit) {
  const std::string text =
      Explained(cluster_.Add(PodIn("ml", "one", {{names::kResourceGpu, "1"}})));
  EXPECT_EQ(text, R"(Pod ml/one requests gpu: 1 and waits.
  3/3 nodes have room.
  kube-scheduler leaves out 1 node with room (old): node is cordoned.

2 nodes with room for its GPUs. If it still waits, see kube-scheduler's reasons (CPU, memory, volumes, affinity to pods): kubectl describe pod.
  RANK   NODE   SCORE   MADE OF
  1/2    big    0
  2/2    mini   0
)");
}

TEST_F(ExplainTest, NamesNodesWithRoomThatKubeSchedulerLeavesOut) {
  kube::NodeObject tainted = ledger::testing::GpuNode("ml-1", 1);
  tainted.taints = {{"team", "ml", "NoSchedule"}};
  tainted.meta.labels["disk"] = "ssd";
  cluster_.Add(tainted);
  kube::PodObject pod = PodIn("ml", "one", {{names::kResourceGpu, "1"}});
  pod.constraints.selector = {{"disk", "ssd"}};
  const kube::PodObject& waiting = cluster_.Add(pod);
  const std::string text = Explained(waiting);
  EXPECT_NE(text.find("leaves out 1 node with room (ml-1): taint team=ml:NoSchedule is not "
                      "tolerated."),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("(big, mini): the node selector disk=ssd does not match."), std::string::npos)
      << text;
  const Json json =
      ParseJson(Explain(cluster_.ledger(), waiting, {.format = OutputFormat::kJson}).value())
          .value();
  EXPECT_EQ(json.Find("nodes")->IntAt("fitting").value(), 0);
  EXPECT_EQ(json.Find("leftOut")->items().size(), 3U);
}

TEST_F(ExplainTest, ReportsPodsWithoutGpus) {
  kube::PodObject plain = PodIn("default", "plain", {{"cpu", "1"}});
  plain.node_name = "cpu-only";
  EXPECT_EQ(Explained(cluster_.Add(plain)),
            "Pod default/plain requests no GPU: Tessera does not place it.\n");
}

TEST_F(ExplainTest, ReportsEndedPodsAndInvalidRequests) {
  kube::PodObject ended = PodIn("default", "done", {{names::kResourceGpu, "1"}});
  ended.phase = kube::PodPhase::kSucceeded;
  EXPECT_EQ(Explained(cluster_.Add(ended)),
            "Pod default/done has ended: it no longer holds a GPU.\n");
  const std::string wrong =
      Explained(cluster_.Add(PodIn("default", "wrong", {{names::kResourceVcudaCore, "150"}})));
  EXPECT_NE(wrong.find("its request cannot be met anywhere"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("150"), std::string::npos) << wrong;
}

TEST_F(ExplainTest, ReportsSchedulingGates) {
  kube::PodObject gated = PodIn("default", "gated", {{names::kResourceGpu, "1"}});
  gated.gates = {"example.com/quota"};
  EXPECT_NE(Explained(cluster_.Add(gated)).find("Scheduling gate example.com/quota"),
            std::string::npos);
}

TEST_F(ExplainTest, ReportsTheNominatedNode) {
  kube::PodObject held = PodIn("default", "held", {{names::kResourceGpu, "1"}});
  held.nominated_node = "big";
  const kube::PodObject& pod = cluster_.Add(held);
  EXPECT_NE(Explained(pod).find("kube-scheduler is placing it on node big, where "
                                "tessera-scheduler holds GPUs for it"),
            std::string::npos);
  const std::string json = Explain(cluster_.ledger(), pod, {.format = OutputFormat::kJson}).value();
  EXPECT_EQ(ParseJson(json)->StringAt("nominatedNode").value(), "big");
}

TEST_F(ExplainTest, WritesJson) {
  const kube::PodObject& pod = cluster_.Add(PodIn("ml", "two", {{names::kResourceGpu, "9"}}));
  const Json json =
      ParseJson(Explain(cluster_.ledger(), pod, {.format = OutputFormat::kJson}).value()).value();
  EXPECT_EQ(json.StringAt("finding").value(), "waits");
  EXPECT_EQ(json.Find("nodes")->Find("fitting")->ToInt().value(), 0);
  EXPECT_EQ(json.Find("nearest")->items()[0].StringAt("node").value(), "big");
}

}  // namespace
}  // namespace tessera::cli
