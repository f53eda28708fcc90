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
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Json PolicyOf(const std::string& spec) {
  Json policy = ParseYaml(spec).value();
  return Json::MakeObject({{"apiVersion", Json::String("nvidia.com/v1")},
                           {"kind", Json::String("ClusterPolicy")},
                           {"spec", std::move(policy)}});
}

TEST(ClusterPolicyTest, MapsSettingsThatTesseraHas) {
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
            R"("serviceMonitor":{"enabled":true,"interval":"30s"},)"
            R"("agent":{"extraArgs":["--binding=allocate"]}})");
  EXPECT_THAT(plan->unmapped_settings, Contains(HasSubstr("spec.migManager: MIG is configured")));
  EXPECT_THAT(plan->unmapped_settings, Contains(HasSubstr("spec.toolkit: image: of a program")));
  ASSERT_EQ(plan->mapped_settings.size(), 9u);
  EXPECT_EQ(plan->mapped_settings[5].field, "spec.dcgmExporter.config.name");
  EXPECT_EQ(plan->mapped_settings[5].setting, "exporter.configMap");
  EXPECT_EQ(plan->mapped_settings[5].value, Json::String("counters"));
  EXPECT_THAT(plan->steps.front(), HasSubstr("copy ConfigMap counters"));
  const auto settings = ParseSettings(spec);
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
}

TEST(ClusterPolicyTest, ADriverThatNvidiasOperatorInstalledIsKept) {
  const auto plan = PlanMigration(PolicyOf("driver: {version: '550'}\n"));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->resource.Find("spec")->Find("agent")->StringAt("driverRoot").value(),
            "/run/nvidia/driver");
  EXPECT_THAT(plan->unmapped_settings, IsEmpty());
  EXPECT_THAT(plan->steps.back(), HasSubstr("set driver.enabled=true"));
}

// A ClusterPolicy as NVIDIA's chart writes it: images, switches and upgradePolicy, with empty
// sections.
TEST(ClusterPolicyTest, SettingsOfTheDriverAreMapped) {
  const auto plan = PlanMigration(PolicyOf(
      "driver:\n"
      "  enabled: true\n"
      "  useNvidiaDriverCRD: false\n"
      "  useOpenKernelModules: true\n"
      "  usePrecompiled: true\n"
      "  repository: registry.test/nvidia\n"
      "  image: driver\n"
      "  version: '550'\n"
      "  imagePullPolicy: IfNotPresent\n"
      "  imagePullSecrets: []\n"
      "  startupProbe: {periodSeconds: 10}\n"
      "  rdma: {enabled: true, useHostMofed: false}\n"
      "  manager: {repository: registry.test/nvidia, image: manager, version: v1, imagePullPolicy: "
      "Always}\n"
      "  env: [{name: A, valueFrom: {}}]\n"
      "  repoConfig: {configMapName: ''}\n"
      "  certConfig: {name: certificates}\n"
      "  upgradePolicy:\n"
      "    autoUpgrade: false\n"
      "    maxParallelUpgrades: 2\n"
      "    maxUnavailable: 25%\n"
      "    waitForCompletion: {timeoutSeconds: 0, podSelector: ''}\n"
      "    podDeletion: {force: false, timeoutSeconds: 300, deleteEmptyDir: false}\n"
      "    drain: {enable: true, podSelector: 'app=train'}\n"
      "gdrcopy: {enabled: true, repository: registry.test/nvidia, image: gdrdrv, version: v2, "
      "args: "
      "[a]}\n"
      "gds: {enabled: false, image: nvidia-fs}\n"));
  ASSERT_TRUE(plan.ok());
  const Json& driver = *plan->resource.Find("spec")->Find("driver");
  EXPECT_EQ(driver.Serialize(),
            R"({"usePrecompiled":true,"repository":"registry.test/nvidia","image":"driver",)"
            R"("version":"550","imagePullPolicy":"IfNotPresent",)"
            R"("rdma":{"enabled":true,"useHostMofed":false},)"
            R"("manager":{"repository":"registry.test/nvidia","image":"manager","version":"v1"},)"
            R"("certConfig":{"name":"certificates"},)"
            R"("upgradePolicy":{"autoUpgrade":false,"maxParallelUpgrades":2,)"
            R"("maxUnavailable":"25%","waitForCompletion":{"timeoutSeconds":0},)"
            R"("drain":{"enable":true},"gpuPodDeletion":{"force":false,"timeoutSeconds":300,)"
            R"("deleteEmptyDir":false}},"kernelModuleType":"open",)"
            R"("gdrcopy":{"enabled":true,"repository":"registry.test/nvidia","image":"gdrdrv",)"
            R"("version":"v2"}})");
  EXPECT_THAT(
      plan->unmapped_settings,
      UnorderedElementsAre(
          "spec.driver.startupProbe: the agent checks the driver",
          HasSubstr("spec.driver.manager.imagePullPolicy: driver.imagePullPolicy is that of all"),
          HasSubstr("spec.driver.env[0].valueFrom: unknown setting"),
          HasSubstr("spec.driver.upgradePolicy.drain.podSelector: a drain evicts all pods"),
          "spec.gdrcopy.args: Tessera's driver has no such setting"));
  Json spec = *plan->resource.Find("spec");
  const auto settings = ParseSettings(spec);
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_FALSE(settings->agent.driver.enabled) << "NVIDIA's operator still has the driver";
  spec.Find("driver")->Set("enabled", Json::Bool(true));
  const auto with_driver = ParseSettings(spec);
  ASSERT_TRUE(with_driver.ok()) << with_driver.status().ToString();
  EXPECT_EQ(with_driver->agent.driver.spec.kernel_module, KernelModule::kOpen);
}

TEST(ClusterPolicyTest, TheNewerNameOfTheKernelModulesTakesPrecedence) {
  const auto modules = [](const std::string& driver) {
    return PlanMigration(PolicyOf(fmt::format("driver: {{version: '550.1', {}}}\n", driver)))
        ->resource.Find("spec")
        ->Find("driver")
        ->StringAt("kernelModuleType")
        .value_or("none");
  };
  EXPECT_EQ(modules("kernelModuleType: auto, useOpenKernelModules: true"), "auto");
  EXPECT_EQ(modules("kernelModuleType: '', useOpenKernelModules: false"), "proprietary");
  EXPECT_EQ(modules("image: driver"), "none");
}

TEST(ClusterPolicyTest, ResourcesOfNvidiasDriversAreNotRead) {
  const auto plan =
      PlanMigration(PolicyOf("driver: {useNvidiaDriverCRD: true, version: '550.1'}\n"));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->resource.Find("spec")->Find("driver"), nullptr);
  EXPECT_THAT(plan->unmapped_settings, Contains(HasSubstr("NVIDIADriver resources are not read")));
}

// A ClusterPolicy as NVIDIA's chart writes it for a host whose driver is installed already.
TEST(ClusterPolicyTest, DefaultsOfTheChartAreNotReportedAsSettings) {
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
  EXPECT_EQ(plan->unmapped_settings,
            (std::vector<std::string>{"spec.hostPaths: rootFS: of a program that Tessera does not "
                                      "run",
                                      "spec.vgpuManager: virtual machines are not supported"}));
  EXPECT_THAT(plan->steps.front(), HasSubstr("apply this resource"));
}

TEST(ClusterPolicyTest, APausedNodeIsStillManagedByNvidiasOperator) {
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
  EXPECT_TRUE(IsManagedByNvidia("paused-for-driver-upgrade"));
  EXPECT_FALSE(IsManagedByNvidia(""));
}

TEST(ClusterPolicyTest, RejectsAnObjectOfAnotherKind) {
  EXPECT_EQ(PlanMigration(ParseJson(R"({"kind":"Pod"})").value()).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(PlanMigration(Json()).status().code(), Code::kInvalidArgument);
}

TEST(ClusterPolicyTest, KeepsAgentsOffNvidiasNodesInEveryAffinityTerm) {
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
