// SPDX-License-Identifier: Apache-2.0
#include "src/cli/commands.h"

#include <gtest/gtest.h>

#include "src/cli/testing/fake_cluster.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using testing::FakeCluster;
using testing::PodIn;

class CommandsTest : public ::testing::Test {
 protected:
  CommandsTest() { FillSample(cluster_); }
  FakeCluster cluster_;
};

TEST_F(CommandsTest, NodesShowUsedAndFree) {
  EXPECT_EQ(ShowNodes(cluster_.view(), {}).value(),
            R"(NODE   MODEL   GPUS   FREE   COMPUTE   MEMORY       PODS   STATUS
big    A100    4      1      1.3/4     96/320 GiB   4      Ready
mini   A100    1      1      0/1       0/16 GiB     0      Ready
old    A100    2      1      0/2       0/32 GiB     0      Ready,Cordoned,1 unhealthy
)");
}

TEST_F(CommandsTest, WideNodesAddPoolDriverAndAddress) {
  EXPECT_EQ(
      ShowNodes(cluster_.view(), {.format = OutputFormat::kWide}).value(),
      R"(NODE   MODEL   GPUS   FREE   COMPUTE   MEMORY       PODS   POOL   DRIVER       INTERNAL-IP   STATUS
big    A100    4      1      1.3/4     96/320 GiB   4      -      550.163.01   10.0.0.1      Ready
mini   A100    1      1      0/1       0/16 GiB     0      -      550.163.01   -             Ready
old    A100    2      1      0/2       0/32 GiB     0      -      550.163.01   10.0.0.2      Ready,Cordoned,1 unhealthy
)");
}

TEST_F(CommandsTest, GpusShowTheirHolders) {
  EXPECT_EQ(
      ShowGpus(cluster_.view(), "", {}).value(),
      R"(NODE   GPU   MODEL   COMPUTE   MEMORY      HELD BY                                            STATUS
big    0     A100    1         80/80 GiB   ml/train (whole)                                   Healthy
big    1     A100    0.3       5/80 GiB    default/nginx (0.3, 5 GiB)                         Healthy
big    2     A100    0         11/80 GiB   default/binpack-1 (8 GiB), web/binpack-2 (3 GiB)   Healthy
big    3     A100    0         0/80 GiB    -                                                  Healthy
mini   0     A100    0         0/16 GiB    -                                                  Healthy
old    0     A100    0         0/16 GiB    -                                                  Healthy
old    1     A100    0         0/16 GiB    -                                                  Unhealthy: XID 79: GPU has fallen off the bus
)");
}

TEST_F(CommandsTest, PodsShowSharesInTheUnitsOfTheirRequests) {
  cluster_.Add(PodIn("ml", "late", {{names::kResourceGpu, "8"}}));
  EXPECT_EQ(ShowPods(cluster_.view(), "", {}).value(),
            R"(NAMESPACE   NAME        ASKS FOR                           NODE   GPUS   STATUS
default     binpack-1   gpu-mem: 8 GiB                     big    2      Placed
default     nginx       vcuda-core: 30, vcuda-memory: 20   big    1      Placed
ml          late        gpu: 8                             -      -      Waiting
ml          train       gpu: 1                             big    0      Placed
web         binpack-2   gpu-mem: 3 GiB                     big    2      Placed
)");
  EXPECT_EQ(ShowPods(cluster_.view(), "web", {}).value(),
            R"(NAME        ASKS FOR         NODE   GPUS   STATUS
binpack-2   gpu-mem: 3 GiB   big    2      Placed
)");
}

TEST_F(CommandsTest, PodsAndNodesAreShownByName) {
  EXPECT_EQ(ShowPods(cluster_.view(), "default", {}, {"nginx", "binpack-1"}).value(),
            R"(NAME        ASKS FOR                           NODE   GPUS   STATUS
nginx       vcuda-core: 30, vcuda-memory: 20   big    1      Placed
binpack-1   gpu-mem: 8 GiB                     big    2      Placed
)");
  const auto missing = ShowPods(cluster_.view(), "default", {}, {"nginx", "binpack-2"});
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_EQ(missing.status().message(),
            "there is no pod \"binpack-2\" in namespace default, but in web: -n web");
  EXPECT_EQ(ShowNodes(cluster_.view(), {}, {"nowhere"}).status().code(), Code::kNotFound);
  // One named object is printed alone, several as a list.
  const auto printed = [&](const char* output, const std::vector<std::string>& names) {
    const Style style = MakeStyle({.output = output}, false).value();
    return ShowPods(cluster_.view(), "default", style, names).value() + " " +
           ShowNodes(cluster_.view(), style, {"mini"}).value();
  };
  EXPECT_EQ(printed("jsonpath={.metadata.name}", {"nginx"}), "nginx mini");
  EXPECT_EQ(printed("jsonpath={.items[*].metadata.name}{.metadata.name}", {"nginx", "binpack-1"}),
            "nginx binpack-1 mini");
  EXPECT_EQ(printed("name", {"nginx"}), "pod/nginx\n node/mini\n");
}

TEST_F(CommandsTest, QuotaShowsUsedLeftAndLimit) {
  cluster_.ledger().SetQuota(
      placement::ParseQuota(
          R"({"ml":{"quota":{"A100":1,"T4":2}},"web":{"pool":["public","spare"]}})")
          .value());
  EXPECT_EQ(ShowQuota(cluster_.view(), "", {}, {}).value(),
            R"(NAMESPACE   MODEL                   USED    LEFT   LIMIT   POOLS
default     NVIDIA A100-SXM4-80GB   0.4     -      -       any
ml          A100                    1       0      1       any
ml          T4                      0       2      2       any
web         NVIDIA A100-SXM4-80GB   0.038   -      -       public,spare
)");
}

TEST_F(CommandsTest, UnknownLimitsAreShownAsQuestionMarks) {
  const Status problem(Code::kDataLoss, "ConfigMap kube-system/gpuquota: \033 is no JSON");
  EXPECT_EQ(ShowQuota(cluster_.view(), "ml", problem, {}).value(),
            R"(NAMESPACE   MODEL                   USED   LEFT   LIMIT   POOLS
ml          NVIDIA A100-SXM4-80GB   1      ?      ?       any
Limits are not known: ConfigMap kube-system/gpuquota: � is no JSON
)");
  EXPECT_NE(ShowQuota(cluster_.view(), "none", problem, {}).value().find("Limits are not known"),
            std::string::npos);
  const std::string json =
      ShowQuota(cluster_.view(), "", problem, {.format = OutputFormat::kJson}).value();
  EXPECT_EQ(ParseJson(json)->StringAt("problem").value(), problem.message());
}

TEST_F(CommandsTest, JsonAndYamlHaveTheSameExactNumbers) {
  const Json json =
      ParseJson(ShowGpus(cluster_.view(), "big", {.format = OutputFormat::kJson}).value()).value();
  EXPECT_EQ(
      ParseYaml(ShowGpus(cluster_.view(), "big", {.format = OutputFormat::kYaml}).value()).value(),
      json);
  const Json& gpu = json.Find("items")->items()[1];
  EXPECT_EQ(gpu.Find("bytes")->Find("used")->ToInt().value(), GiB(5).count());
  EXPECT_EQ(gpu.Find("milli")->Find("used")->ToInt().value(), 300);
  EXPECT_EQ(gpu.Find("heldBy")->items()[0].StringAt("name").value(), "nginx");
}

TEST_F(CommandsTest, MigSlicesAreListedInPlaceOfTheirGpu) {
  cluster_.AddChanged(ledger::testing::GpuNode("sliced", 2), 1, [](device::Gpu& gpu) {
    gpu.mig = {{.uuid = "MIG-a", .profile = "1g.10gb", .gpu_instance = 7, .memory = GiB(10)},
               {.uuid = "MIG-b", .profile = "3g.40gb", .gpu_instance = 9, .memory = GiB(40)}};
  });
  EXPECT_EQ(ShowGpus(cluster_.view(), "sliced", {}).value(),
            R"(NODE     GPU   MODEL          COMPUTE   MEMORY     HELD BY   STATUS
sliced   0     A100           0         0/80 GiB   -         Healthy
sliced   1:7   A100 1g.10gb   0         0/10 GiB   -         Healthy
sliced   1:9   A100 3g.40gb   0         0/40 GiB   -         Healthy
)");
}

TEST_F(CommandsTest, ErrorForAnUnknownNodeListsSimilarNames) {
  const auto answer = ShowGpus(cluster_.view(), "bog", {});
  EXPECT_EQ(answer.status().code(), Code::kNotFound);
  EXPECT_EQ(answer.status().message(), "there is no node \"bog\": did you mean big?");
}

TEST_F(CommandsTest, ControlCodesInReasonsDoNotReachTheTerminal) {
  cluster_.AddChanged(ledger::testing::GpuNode("evil", 1), 0, [](device::Gpu& gpu) {
    gpu.health = device::Health::Unhealthy("\033]0;owned\007\u009b31m\nFAKE");
    gpu.model = "GPU \033[2J";
  });
  for (const OutputFormat format :
       {OutputFormat::kTable, OutputFormat::kWide, OutputFormat::kJson, OutputFormat::kYaml}) {
    const Style style{.format = format};
    const std::string all = ShowNodes(cluster_.view(), style).value() +
                            ShowGpus(cluster_.view(), "", style).value() +
                            ShowPods(cluster_.view(), "", style).value();
    EXPECT_EQ(all.find('\033'), std::string::npos) << all;
    EXPECT_EQ(all.find('\007'), std::string::npos) << all;
    EXPECT_EQ(all.find("\u009b"), std::string::npos) << all;
    EXPECT_EQ(all.find("\nFAKE"), std::string::npos) << all;
  }
}

TEST_F(CommandsTest, ColorsOnlyOnRequest) {
  EXPECT_EQ(ShowNodes(cluster_.view(), {}).value().find('\033'), std::string::npos);
  EXPECT_NE(ShowNodes(cluster_.view(), {.color = true}).value().find("\033[31m"),
            std::string::npos);
}

TEST(CommandsOnEmptyClusterTest, SayThatThereIsNothing) {
  FakeCluster cluster;
  EXPECT_TRUE(ShowNodes(cluster.view(), {}).value().starts_with("No node has GPUs."));
  EXPECT_EQ(ShowNodes(cluster.view(), {}, {}, "zone=a").value(),
            "No node with GPUs matches -l zone=a.\n");
  EXPECT_EQ(ShowGpus(cluster.view(), "", {}, "zone=a").value(),
            "No node with GPUs matches -l zone=a.\n");
  EXPECT_EQ(ShowPods(cluster.view(), "", {}).value(), "No pod requests GPUs.\n");
  EXPECT_EQ(ShowQuota(cluster.view(), "", {}, {}).value(),
            "No namespace has a GPU quota, and none uses GPUs.\n");
  EXPECT_EQ(ShowPods(cluster.view(), "", {.format = OutputFormat::kYaml}).value(),
            "kind: PodList\nitems: []\n");
}

}  // namespace
}  // namespace tessera::cli
