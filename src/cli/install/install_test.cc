// SPDX-License-Identifier: Apache-2.0
// The pure parts of install, upgrade and uninstall. tests/e2e/installs/commands_test.go runs them
// on a real cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cli/gpu_pods.h"
#include "src/cli/install/changes.h"
#include "src/cli/install/installer.h"
#include "src/cli/install/inventory.h"
#include "src/cli/install/operator_installer.h"
#include "src/cli/install/rollout.h"
#include "src/cli/install/uninstaller.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json FromYaml(std::string_view yaml) { return ParseYaml(yaml).value(); }

TEST(InventoryTest, ReadsWhatItWrote) {
  const InstallationRecord written{
      .version = "0.1.0",
      .spec = FromYaml("scheduler: {policy: null}"),
      .objects = {{"apps/v1", "DaemonSet", "ns", "a"}, {"v1", "Namespace", "", "b"}},
      .owns_namespace = true};
  const auto read = ReadInventory(InventoryObject(written));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->version, written.version);
  EXPECT_EQ(read->spec, written.spec);
  EXPECT_EQ(read->objects, written.objects);
  EXPECT_TRUE(read->owns_namespace);
  EXPECT_EQ(IdOf(InventoryObject(written)), InventoryId());
}

TEST(InventoryTest, TheErrorForADamagedInventoryNamesTheRemedy) {
  for (const auto* text :
       {"data: null", "data: {version: a}",
        "data: {version: a, ownsNamespace: 'true', settings: '{', objects: '[]'}",
        "data: {version: a, ownsNamespace: 'true', settings: '{}', objects: '[1]'}"}) {
    const auto read = ReadInventory(FromYaml(text));
    EXPECT_EQ(read.status().code(), Code::kDataLoss) << text;
    EXPECT_THAT(read.status().message(), HasSubstr("tessera install --force"));
  }
}

TEST(ChangesTest, NamesEachValueThatDiffers) {
  const Json before = FromYaml(
      "kind: A\nspec:\n  replicas: 2\n  containers: [{name: a, args: [x, y]}, {name: b}]\n"
      "metadata: {resourceVersion: '1', labels: {a: b}}\nstatus: {x: 1}\n");
  const Json after = FromYaml(
      "kind: A\nspec:\n  replicas: 3\n  containers: [{name: b}, {name: a, args: [x, z]}]\n"
      "metadata: {resourceVersion: '2', labels: {c: d}}\nstatus: {x: 2}\n");
  EXPECT_THAT(
      ChangesOf(before, after),
      ElementsAre("spec.replicas: 2 -> 3", R"(spec.containers[a].args[1]: "y" -> "z")",
                  R"(metadata.labels.a: "b" -> (none))", R"(metadata.labels.c: (none) -> "d")"));
  EXPECT_THAT(ChangesOf(before, before), IsEmpty());
}

TEST(ChangesTest, ShowsNoSecrets) {
  EXPECT_THAT(
      ChangesOf(FromYaml("kind: Secret\ndata: {a: b}\n"), FromYaml("kind: Secret\ndata: {a: c}\n")),
      IsEmpty());
}

constexpr const char* kSet =
    "kind: DaemonSet\nmetadata: {{name: a, namespace: ns, generation: {}}}\n"
    "spec: {{updateStrategy: {{type: {}}}}}\n"
    "status: {{observedGeneration: 2, desiredNumberScheduled: 3, numberAvailable: {},\n"
    "  updatedNumberScheduled: {}}}\n";

std::string WhySetNotRolledOut(int generation, const char* strategy, int available, int updated) {
  return WhyNotRolledOut(
      FromYaml(fmt::format(fmt::runtime(kSet), generation, strategy, available, updated)));
}

TEST(RolloutTest, WaitsForAllPodsToBeNewAndReady) {
  EXPECT_EQ(WhySetNotRolledOut(2, "RollingUpdate", 3, 3), "");
  EXPECT_EQ(WhySetNotRolledOut(3, "RollingUpdate", 3, 3), "DaemonSet ns/a: not yet observed");
  EXPECT_EQ(WhySetNotRolledOut(2, "RollingUpdate", 2, 3), "DaemonSet ns/a: 2 of 3 pods ready");
  EXPECT_EQ(WhySetNotRolledOut(2, "RollingUpdate", 3, 1), "DaemonSet ns/a: 1 of 3 pods ready");
  EXPECT_EQ(WhySetNotRolledOut(2, "OnDelete", 3, 1), "");
  const std::string deployment =
      "kind: Deployment\nmetadata: {name: a, generation: 1}\nspec: {replicas: 2}\n";
  EXPECT_EQ(WhyNotRolledOut(FromYaml(deployment)), "Deployment a: not yet observed");
  EXPECT_EQ(WhyNotRolledOut(
                FromYaml(deployment + "status: {observedGeneration: 1, updatedReplicas: 2}\n")),
            "Deployment a: 0 of 2 pods ready");
  EXPECT_EQ(WhyNotRolledOut(FromYaml("kind: Service\nmetadata: {name: a}\n")), "");
}

TEST(UninstallTest, OnlyBoundPodsThatHaveNotEndedHoldGpus) {
  const auto pod = [](const char* resource, const char* phase, const char* node) {
    return FromYaml(
        fmt::format("spec: {{{}containers: [{{}}, {{resources: {{limits: {{{}: 1}}}}}}]}}\n"
                    "status: {{phase: {}}}\n",
                    node, resource, phase));
  };
  EXPECT_TRUE(HoldsGpus(pod("nvidia.com/gpu", "Running", "nodeName: a, ")));
  EXPECT_TRUE(HoldsGpus(pod("nvidia.com/mig-1g.10gb", "Pending", "nodeName: a, ")));
  EXPECT_TRUE(HoldsGpus(pod("tencent.com/vcuda-core", "Running", "nodeName: a, ")));
  EXPECT_FALSE(HoldsGpus(pod("nvidia.com/gpu", "Running", "")));
  EXPECT_FALSE(HoldsGpus(pod("nvidia.com/gpu", "Succeeded", "nodeName: a, ")));
  EXPECT_FALSE(HoldsGpus(pod("cpu", "Running", "nodeName: a, ")));
}

TEST(InstallTest, TheNamespaceComesFirst) {
  const auto objects = ObjectsToInstall(Json::MakeObject());
  ASSERT_TRUE(objects.ok()) << objects.status().ToString();
  EXPECT_EQ(IdOf(objects->front()).Text(), "Namespace tessera-system");
  EXPECT_GT(objects->size(), 30u);
}

TEST(InstallTest, WithTheOperatorItsResourceComesLast) {
  const auto objects = OperatorObjects(FromYaml("scheduler: {replicas: 3}"));
  ASSERT_TRUE(objects.ok()) << objects.status().ToString();
  EXPECT_EQ(IdOf(objects->front()).Text(), "Namespace tessera-system");
  EXPECT_EQ(IdOf(objects->end()[-2]).Text(), "CustomResourceDefinition tesseras.tessera.dev");
  EXPECT_EQ(IdOf(objects->back()), TesseraResourceId());
  EXPECT_EQ(objects->back().Find("spec")->Serialize(), R"({"scheduler":{"replicas":3}})");
  EXPECT_EQ(OperatorObjects(FromYaml("a: b")).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::cli
