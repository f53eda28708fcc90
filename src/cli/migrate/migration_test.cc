// SPDX-License-Identifier: Apache-2.0
// The plan alone. tests/e2e/installs/migrate_test.go runs the command on a real cluster.
#include "src/cli/migrate/migration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json Yaml(const std::string& text) { return ParseYaml(text).value(); }

Json PolicyNamed(const std::string& name, const std::string& created, const std::string& root) {
  return Yaml(
      fmt::format("kind: ClusterPolicy\nmetadata: {{name: {}, creationTimestamp: '{}'}}\n"
                  "spec: {{hostPaths: {{driverInstallDir: {}}}, gds: {{enabled: true}}}}\n",
                  name, created, root));
}

Json SetOf(const std::string& name, const std::string& image, const std::string& args,
           const std::string& owner = "[]") {
  return Yaml(fmt::format(
      "metadata: {{namespace: kube-system, name: {0}, uid: uid-{0}, ownerReferences: {3}}}\n"
      "spec: {{template: {{spec: {{containers: [{{image: {1}, args: {2}}}]}}}}}}\n",
      name, image, args, owner));
}

Json PodWith(const std::string& name, const std::string& node, const std::string& limits,
             const std::string& owner = "") {
  return Yaml(
      fmt::format("metadata: {{namespace: default, name: {}, ownerReferences: [{{uid: uid-{}}}]}}\n"
                  "spec: {{nodeName: {}, containers: [{{resources: {{limits: {}}}}}]}}\n"
                  "status: {{phase: Running}}\n",
                  name, owner, node, limits));
}

Json NodeWith(const std::string& name, const std::string& labels, const std::string& amounts) {
  return Yaml(fmt::format("metadata: {{name: {}, labels: {}}}\nstatus: {{allocatable: {}}}\n", name,
                          labels, amounts));
}

constexpr const char* kManagedLabel = "{nvidia.com/gpu.deploy.device-plugin: 'true'}";

// n1 is managed by NVIDIA's operator, n2 has gpushare, n3 nothing, n4 no GPUs.
MigrationFacts MixedCluster() {
  MigrationFacts facts;
  facts.policies = {PolicyNamed("newer", "2026-02-01T00:00:00Z", "/b"),
                    PolicyNamed("older", "2026-01-01T00:00:00Z", "/a")};
  facts.daemon_sets = {
      SetOf("gpushare", "reg/k8s-gpushare-plugin:v2", "['--memory-unit=MiB']"),
      SetOf("operand", "nvcr.io/nvidia/k8s-device-plugin:v1", "[]", "[{kind: ClusterPolicy}]"),
      SetOf("other", "example.com/agent:1", "[]")};
  facts.pods = {PodWith("gpushare-x", "n2", "{}", "gpushare"),
                PodWith("operand-x", "n1", "{}", "operand"),
                PodWith("whole", "n1", "{nvidia.com/gpu: 1}"),
                PodWith("share", "n2", "{aliyun.com/gpu-mem: 2048}"),
                PodWith("hami", "n1", "{nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}"),
                PodWith("cpu", "n1", "{cpu: 1}")};
  facts.nodes = {NodeWith("n2", "{}", "{aliyun.com/gpu-mem: '80', cpu: '4'}"),
                 NodeWith("n1", kManagedLabel, "{nvidia.com/gpu: '8'}"),
                 NodeWith("n3", "{}", "{nvidia.com/gpu: '4'}"), NodeWith("n4", "{}", "{cpu: '4'}")};
  return facts;
}

TEST(MigrationTest, TheOldestPolicyAndTheFlagsOfPluginsBecomeSettings) {
  const auto plan = PlanOf(MixedCluster());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->resource.Find("spec")->Serialize(),
            R"({"agent":{"driverRoot":"/a"},"sharing":{"memoryUnit":"MiB"}})");
  EXPECT_EQ(PlanOf(MixedCluster(), Yaml("agent: {driverRoot: /c}"))
                ->resource.Find("spec")
                ->Find("agent")
                ->Serialize(),
            R"({"driverRoot":"/c"})");
  EXPECT_THAT(plan->unmapped_settings,
              ElementsAre(HasSubstr("spec.gds: it is a part of the driver")));
  ASSERT_EQ(plan->mapped_settings.size(), 2u);
  EXPECT_EQ(plan->mapped_settings[1].field, "DaemonSet kube-system/gpushare --memory-unit");
}

TEST(MigrationTest, NamesTheSystemsThatOfferGpusAndTheObstacles) {
  const auto plan = PlanOf(MixedCluster());
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->sources.size(), 2u);
  EXPECT_EQ(plan->sources[0].object, "ClusterPolicy older");
  EXPECT_EQ(plan->sources[0].nodes, 1u);
  EXPECT_EQ(plan->sources[1].system, "gpushare");
  ASSERT_EQ(plan->obstacles.size(), 1u);
  EXPECT_THAT(plan->obstacles[0],
              HasSubstr("on 1 node; pods go on without it: kubectl -n kube-system delete "
                        "daemonset gpushare"));
  // The pod of gpushare's DaemonSet is gone.
  MigrationFacts facts = MixedCluster();
  facts.pods.erase(facts.pods.begin());
  EXPECT_THAT(PlanOf(facts)->obstacles, IsEmpty());
}

TEST(MigrationTest, SaysWhatHappensToEachNodeAndPod) {
  const auto plan = PlanOf(MixedCluster());
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->nodes.size(), 3u);
  EXPECT_EQ(plan->nodes[0].system, "NVIDIA's operator");
  EXPECT_THAT(plan->nodes[0].outcome, HasSubstr("nvidia.com/gpu.deploy.device-plugin is false"));
  EXPECT_EQ(plan->nodes[0].pods, 2u);
  EXPECT_EQ(plan->nodes[1].gpus, "aliyun.com/gpu-mem: 80");
  EXPECT_EQ(plan->nodes[1].outcome,
            "an agent starts once DaemonSet kube-system/gpushare is deleted");
  EXPECT_EQ(plan->nodes[2].outcome, "an agent starts");
  ASSERT_EQ(plan->pods.size(), 3u);
  EXPECT_EQ(plan->pods[0].outcome, "keeps running; a new pod with this request waits");
  EXPECT_EQ(plan->pods[1].request, "aliyun.com/gpu-mem: 2048");
  EXPECT_EQ(plan->pods[2].outcome, "keeps running");
}

TEST(MigrationTest, AContainerWithAShareOfGpuManagerDoesNotStartAgain) {
  MigrationFacts facts;
  facts.daemon_sets = {SetOf("gm", "ccr.ccs.tencentyun.com/tkeimages/gpu-manager:v1.1.5", "[]")};
  facts.pods = {PodWith("gm-x", "n1", "{}", "gm"),
                PodWith("share", "n1", "{tencent.com/vcuda-core: 30}")};
  const auto plan = PlanOf(facts);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->pods[0].outcome,
            "keeps running; if one of its containers restarts, delete the pod");
}

TEST(MigrationTest, HamisSharesHaveNoEquivalent) {
  MigrationFacts facts;
  facts.daemon_sets = {SetOf("hami-device-plugin", "docker.io/projecthami/hami:v2.5", "[]")};
  const auto plan = PlanOf(facts);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->unmapped_settings, Contains(HasSubstr("request aliyun.com/gpu-mem")));
}

TEST(MigrationTest, NothingToMigrateFromIsAnError) {
  EXPECT_EQ(PlanOf({}).status().code(), Code::kNotFound);
  EXPECT_THAT(PlanOf({}).status().message(), HasSubstr("tessera install"));
}

TEST(MigrationTest, ASettingThatTesseraRejectsNamesTheField) {
  MigrationFacts facts;
  facts.policies = {PolicyNamed("p", "", "relative")};
  const auto plan = PlanOf(facts);
  EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr("agent.driverRoot"));
}

TEST(MigrationTest, ThePlanIsShownAsTablesAndTheResourceAsYaml) {
  const auto plan = PlanOf(MixedCluster());
  ASSERT_TRUE(plan.ok());
  const std::string text = ShowMigration(*plan, {}).value();
  EXPECT_THAT(text, HasSubstr("SETTING              VALUE   FROM\n"
                              "agent.driverRoot     /a      spec.hostPaths.driverInstallDir\n"));
  EXPECT_THAT(text, HasSubstr("spec.gds             it is a part of the driver"));
  EXPECT_THAT(text, HasSubstr("BEFORE\n- DaemonSet kube-system/gpushare"));
  EXPECT_THAT(text, HasSubstr("STEPS\n1. apply this resource"));
  EXPECT_THAT(ShowMigration(*plan, {.format = OutputFormat::kYaml}).value(),
              HasSubstr("kind: Tessera\n"));
}

}  // namespace
}  // namespace tessera::cli
