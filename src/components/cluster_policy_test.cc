// SPDX-License-Identifier: Apache-2.0
#include "src/components/cluster_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/components/settings.h"
#include "src/formats/yaml.h"

namespace tessera::components {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Json PolicyOf(const std::string& spec) {
  Json policy = ParseYaml(spec).value();
  return Json::MakeObject({{"apiVersion", Json::String("nvidia.com/v1")},
                           {"kind", Json::String("ClusterPolicy")},
                           {"spec", std::move(policy)}});
}

TEST(ClusterPolicyTest, MapsWhatHasAMeaning) {
  const auto plan = PlanMigration(
      PolicyOf("daemonsets: {priorityClassName: p, tolerations: [{key: a}], updateStrategy: "
               "OnDelete}\n"
               "toolkit: {enabled: false, image: x}\n"
               "dcgmExporter: {enabled: true, config: {name: counters}, serviceMonitor: {enabled: "
               "true, interval: 30s}}\n"
               "driver: {enabled: false}\n"
               "migManager: {enabled: true}\n"));
  ASSERT_TRUE(plan.ok());
  const Json& spec = *plan->resource.Find("spec");
  EXPECT_EQ(spec.Serialize(),
            R"({"daemonsets":{"tolerations":[{"key":"a"}],"priorityClassName":"p",)"
            R"("updateStrategy":"OnDelete"},"runtime":{"enabled":false},)"
            R"("exporter":{"enabled":true,"configMap":"counters"},)"
            R"("podMonitor":{"enabled":true,"interval":"30s"},)"
            R"("agent":{"extraArgs":["--binding=allocate"]}})");
  EXPECT_THAT(plan->dropped, Contains(HasSubstr("spec.migManager: MIG is configured")));
  EXPECT_THAT(plan->dropped, Contains(HasSubstr("spec.toolkit: image: of a program")));
  ASSERT_EQ(plan->mapped.size(), 9u);
  EXPECT_EQ(plan->mapped[5].field, "spec.dcgmExporter.config.name");
  EXPECT_EQ(plan->mapped[5].setting, "exporter.configMap");
  EXPECT_EQ(plan->mapped[5].value, Json::String("counters"));
  EXPECT_THAT(plan->steps.front(), HasSubstr("copy ConfigMap counters"));
  const auto settings = ParseSettings(spec);
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
}

TEST(ClusterPolicyTest, ADriverThatWasInstalledStays) {
  const auto plan = PlanMigration(PolicyOf("driver: {version: '550'}\n"));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->resource.Find("spec")->Find("agent")->StringAt("driverRoot").value(),
            "/run/nvidia/driver");
  EXPECT_THAT(plan->dropped, Contains(HasSubstr("spec.driver: the driver stays")));
}

// As the chart of NVIDIA's operator writes it for a host whose driver is installed already.
TEST(ClusterPolicyTest, DefaultsOfTheChartAreNoSettings) {
  const auto plan = PlanMigration(
      PolicyOf("driver: {enabled: false, repository: nvcr.io/nvidia}\n"
               "hostPaths: {rootFS: /, driverInstallDir: /run/nvidia/driver}\n"
               "dcgmExporter: {config: {name: ''}, serviceMonitor: {additionalLabels: {}}}\n"
               "gds: {enabled: false, image: nvidia-fs}\n"
               "vgpuManager: {enabled: true}\n"
               "psp: {}\n"
               "operator: {runtimeClass: gpu}\n"));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->resource.Find("spec")->Serialize(), R"({"runtime":{"runtimeClass":"gpu"}})");
  EXPECT_EQ(plan->dropped,
            (std::vector<std::string>{"spec.hostPaths: rootFS: of a program that Tessera does not "
                                      "run",
                                      "spec.vgpuManager: virtual machines are not supported"}));
  EXPECT_THAT(plan->steps.front(), HasSubstr("apply this resource"));
}

TEST(ClusterPolicyTest, APausedNodeIsManaged) {
  const auto node = [](const char* value) {
    return ParseYaml(
               fmt::format("metadata: {{labels: {{nvidia.com/gpu.deploy.device-plugin: '{}'}}}}",
                           value))
        .value();
  };
  EXPECT_TRUE(IsManagedByNvidia(node("true")));
  EXPECT_TRUE(IsManagedByNvidia(node("paused-for-mig-change")));
  EXPECT_FALSE(IsManagedByNvidia(node("false")));
  EXPECT_FALSE(IsManagedByNvidia(Json::MakeObject()));
}

TEST(ClusterPolicyTest, RejectsAnotherKind) {
  EXPECT_EQ(PlanMigration(ParseJson(R"({"kind":"Pod"})").value()).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(PlanMigration(Json()).status().code(), Code::kInvalidArgument);
}

TEST(ClusterPolicyTest, KeepsAgentsOffInEveryTerm) {
  std::vector<Component> components = {
      {"agent",
       {ParseYaml("kind: DaemonSet\nspec: {template: {spec: {affinity: {nodeAffinity: "
                  "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
                  "[{matchExpressions: [{key: a, operator: Exists}]}, {}]}}}}}}")
            .value(),
        ParseYaml("kind: DaemonSet").value(), ParseYaml("kind: Service").value()}}};
  KeepOffNvidiaNodes(&components);
  const auto text = [&](int i) { return components[0].objects[i].Serialize(); };
  const std::string term =
      R"({"key":"nvidia.com/gpu.deploy.device-plugin","operator":"NotIn","values":["true",)"
      R"("paused-for-driver-upgrade","paused-for-mig-change"]})";
  EXPECT_THAT(text(0), HasSubstr(R"([{"key":"a","operator":"Exists"},)" + term));
  EXPECT_THAT(text(0), HasSubstr(R"({"matchExpressions":[)" + term + "]}"));
  EXPECT_THAT(text(1), HasSubstr(R"("nodeSelectorTerms":[{"matchExpressions":[)" + term));
  EXPECT_EQ(text(2), R"({"kind":"Service"})");
}

}  // namespace
}  // namespace tessera::components
