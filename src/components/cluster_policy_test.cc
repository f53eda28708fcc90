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
  EXPECT_THAT(plan->dropped, Contains(HasSubstr("spec.toolkit.image")));
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
