// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/formats/yaml.h"

namespace tessera::driver {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

const WallTime kPodCreated{std::chrono::seconds(1'800'000'000)};

std::vector<FleetPool> FleetPools(std::string_view yaml) {
  const auto settings = components::ParseSettings(ParseYaml(yaml).value());
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
  return PoolsOf(*settings).value();
}

FleetNode GpuNode(const std::string& name, const std::string& driver_pool = "") {
  FleetNode node{.name = name,
                 .ready = true,
                 .os_image = "Ubuntu 22.04.4 LTS",
                 .kernel = "5.15",
                 .gpu_reason = std::string(names::kReasonDriverNotReady)};
  node.labels[std::string(names::kLabelGpuPresent)] = "true";
  if (!driver_pool.empty()) {
    node.labels[std::string(names::kLabelDriverPool)] = driver_pool;
    node.labels["nvidia.com/gpu.deploy.driver"] = "true";
  }
  return node;
}

FleetPod PodOn(const std::string& node, const std::string& revision) {
  return {.node = node,
          .pod = {.ns = "s", .name = "driver-" + node, .revision = revision, .ready = true},
          .created = kPodCreated};
}

constexpr char kDriver550[] = "driver: {enabled: true, version: '550.1'}";
constexpr char kDriver560[] = "driver: {enabled: true, version: '560.1'}";

TEST(FleetTest, ANodeWithAGpuGetsADriver) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a");
  node.labels.clear();
  const FleetView view = ViewFleet(pools, {node}, {}, {});
  ASSERT_EQ(view.patches.size(), 1u);
  EXPECT_EQ(view.patches[0].labels,
            (StringChanges{{std::string(names::kLabelDriverPool), "default-ubuntu22-04"},
                           {"nvidia.com/gpu.present", "true"},
                           {"nvidia.com/gpu.deploy.driver", "true"}}));
  ASSERT_EQ(view.daemonsets.size(), 1u);
  EXPECT_THAT(view.daemonsets[0].Serialize(), HasSubstr("nvcr.io/nvidia/driver:550.1-ubuntu22.04"));
  ASSERT_EQ(view.pools[0].nodes.size(), 1u);
  EXPECT_TRUE(view.revisions.contains(view.pools[0].nodes[0].wanted_revision));
}

TEST(FleetTest, AWorkingHostDriverIsLeftAlone) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a");
  node.gpu_ready = true;
  const FleetView view = ViewFleet(pools, {node}, {}, {});
  EXPECT_TRUE(view.patches.empty() && view.daemonsets.empty());
  EXPECT_EQ(view.pools[0].on_host, 1);
  FleetNode off = GpuNode("b");
  off.labels["nvidia.com/gpu.deploy.driver"] = "false";
  const FleetView opted_out = ViewFleet(pools, {off}, {}, {});
  EXPECT_EQ(opted_out.pools[0].nodes[0].wanted_revision, "");
}

TEST(FleetTest, DeployLabelsOfAdministratorsAndPausesStay) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  for (const char* value : {"false", "paused-for-driver-upgrade"}) {
    node.labels["nvidia.com/gpu.deploy.driver"] = value;
    const FleetView view = ViewFleet(pools, {node}, {}, {});
    EXPECT_TRUE(view.patches.empty()) << value;
    EXPECT_EQ(view.pools[0].nodes[0].wanted_revision, "") << value;
  }
}

TEST(FleetTest, OneDeployLabelTurnsAllComponentsOff) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  node.labels["nvidia.com/gpu.deploy.operands"] = "false";
  const FleetView view = ViewFleet(pools, {node}, {}, {});
  ASSERT_EQ(view.patches.size(), 1u);
  EXPECT_EQ(view.patches[0].labels,
            (StringChanges{{"nvidia.com/gpu.deploy.driver", std::nullopt}}));
  EXPECT_EQ(view.pools[0].nodes[0].wanted_revision, "");
}

TEST(FleetTest, ARolledBackNodeKeepsTheDaemonSetOfItsOwnPool) {
  // Another pool wants the driver to which node a was rolled back.
  const auto pools = FleetPools(
      "driver: {enabled: true, version: '550.1'}\n"
      "pools: [{name: own, nodeSelector: {a: b}, driver: {enabled: true, version: '550.1'}}]");
  FleetNode node = GpuNode("a", "default-ubuntu22-04"), other = GpuNode("b", "own-ubuntu22-04");
  other.labels["a"] = "b";
  const FleetView first = ViewFleet(pools, {node, other}, {}, {});
  const std::string revision = first.pools[1].nodes[0].wanted_revision;
  node.labels[std::string(names::kLabelDriverRevision)] = revision;
  const FleetView view = ViewFleet(pools, {node, other}, {PodOn("a", revision)}, first.revisions);
  ASSERT_EQ(view.daemonsets.size(), 3u);
  const Json& pinned = view.daemonsets[1];
  EXPECT_THAT(pinned.Find("metadata")->StringAt("name").value(),
              HasSubstr("default-ubuntu22-04-" + revision.substr(0, 8)));
}

TEST(FleetTest, TheViewShowsTheInstalledAndTheWantedDriverVersion) {
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  const auto before = FleetPools(kDriver550), after = FleetPools(kDriver560);
  const FleetView first = ViewFleet(before, {node}, {}, {});
  const std::string revision = first.pools[0].nodes[0].wanted_revision;
  const FleetView view = ViewFleet(after, {node}, {PodOn("a", revision)}, first.revisions);
  EXPECT_EQ(view.pools[0].nodes[0].driver->version, "550.1");
  EXPECT_EQ(view.pools[0].nodes[0].wanted_version, "560.1");
}

TEST(FleetTest, AHostDriverWithAnUnhealthyGpuIsLeftAlone) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a");
  for (const std::string_view reason :
       {names::kReasonGpuUnhealthy, names::kReasonRuntimeNotConfigured}) {
    node.gpu_reason = reason;
    const FleetView view = ViewFleet(pools, {node}, {}, {});
    EXPECT_TRUE(view.patches.empty()) << reason;
    EXPECT_EQ(view.pools[0].on_host, 1) << reason;
  }
}

TEST(FleetTest, ANodeGetsNoDriverBeforeItsAgentHasLookedForOne) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a");
  node.gpu_reason.clear();
  EXPECT_TRUE(ViewFleet(pools, {node}, {}, {}).patches.empty());
  node.gpu_reason = names::kReasonDriverNotReady;
  EXPECT_EQ(ViewFleet(pools, {node}, {}, {}).patches.size(), 1u);
}

TEST(FleetTest, ANodeOfNvidiasOperatorKeepsItsDriver) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a");
  node.labels["nvidia.com/gpu.deploy.driver"] = "true";
  node.labels["nvidia.com/gpu.deploy.device-plugin"] = "true";
  const FleetView managed_by_nvidia = ViewFleet(pools, {node}, {}, {});
  EXPECT_TRUE(managed_by_nvidia.patches.empty() && managed_by_nvidia.daemonsets.empty());
  node.labels["nvidia.com/gpu.deploy.device-plugin"] = "false";
  EXPECT_EQ(ViewFleet(pools, {node}, {}, {}).patches.size(), 1u);
}

TEST(FleetTest, ANodeThatLeavesAllPoolsIsReleased) {
  const auto pools = FleetPools(
      "driver: {enabled: true, version: '550.1'}\ndaemonsets: {nodeSelector: {gpu: 'yes'}}");
  EXPECT_TRUE(ViewFleet(pools, {GpuNode("a")}, {}, {}).patches.empty());
  const FleetView view = ViewFleet(pools, {GpuNode("a", "default-ubuntu22-04")}, {}, {});
  EXPECT_EQ(view.releases.size(), 1u);
}

TEST(FleetTest, ASystemWithoutAnImageIsAProblemOfThatNodeAlone) {
  const auto pools = FleetPools(kDriver550);
  FleetNode odd = GpuNode("odd");
  odd.os_image = "Flatcar Container Linux";
  const FleetView view = ViewFleet(pools, {odd, GpuNode("a")}, {}, {});
  EXPECT_EQ(view.pools[0].nodes.size(), 1u);
  ASSERT_EQ(view.problems.size(), 1u);
  EXPECT_EQ(view.problems[0].node, "odd");
  EXPECT_EQ(view.problems[0].reason, "UnsupportedSystem");
}

TEST(FleetTest, EachPoolOfNodesHasItsDriver) {
  const auto pools = FleetPools(
      "driver: {enabled: true, version: '550.1'}\n"
      "pools:\n- {name: new, nodeSelector: {gen: new}, driver: {version: '570.1'}}\n"
      "- {name: host, nodeSelector: {gen: host}, driver: {enabled: false}}\n");
  FleetNode fresh = GpuNode("b"), host = GpuNode("c"), other = GpuNode("d");
  fresh.labels["gen"] = "new";
  host.labels["gen"] = "host";
  other.os_image = "Rocky Linux 9.4 (Blue Onyx)";
  const FleetView view = ViewFleet(pools, {GpuNode("a"), fresh, host, other}, {}, {});
  EXPECT_EQ(view.daemonsets.size(), 3u);
  EXPECT_EQ(view.patches.size(), 3u);
  EXPECT_EQ(view.pools[0].nodes.size(), 1u);
  EXPECT_EQ(view.pools[1].nodes.size(), 0u);
  EXPECT_EQ(view.pools[2].nodes.size(), 2u);
}

TEST(FleetTest, ANodeChangesItsPoolOnlyInsideAnUpgrade) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a", "old-pool");
  EXPECT_TRUE(ViewFleet(pools, {node}, {PodOn("a", "r")}, {}).patches.empty());
  node.labels[std::string(names::kLabelUpgradeState)] = "pod-restart-required";
  const FleetView view = ViewFleet(pools, {node}, {PodOn("a", "r")}, {});
  ASSERT_EQ(view.patches.size(), 1u);
  EXPECT_THAT(view.patches[0].labels, Contains(Key(std::string(names::kLabelDriverPool))));
}

TEST(FleetTest, ARolledBackNodeKeepsTheDaemonSetOfItsRevision) {
  const FleetView first =
      ViewFleet(FleetPools(kDriver550), {GpuNode("a", "default-ubuntu22-04")}, {}, {});
  const std::string old = first.pools[0].nodes[0].wanted_revision;
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  node.annotations[std::string(names::kAnnotationDriverGood)] = old;
  const auto pools = FleetPools(kDriver560);
  const FleetView running = ViewFleet(pools, {node}, {}, first.revisions);
  EXPECT_EQ(running.daemonsets.size(), 1u);
  EXPECT_TRUE(running.revisions.contains(old)) << "a rollback may need it";
  const FleetNode unproven = GpuNode("a", "default-ubuntu22-04");
  EXPECT_TRUE(
      ViewFleet(pools, {unproven}, {PodOn("a", old)}, first.revisions).revisions.contains(old));
  node.labels[std::string(names::kLabelDriverRevision)] = old;
  const FleetView pinned = ViewFleet(pools, {node}, {}, running.revisions);
  ASSERT_EQ(pinned.daemonsets.size(), 2u);
  EXPECT_THAT(pinned.daemonsets[1].Serialize(), HasSubstr("550.1-ubuntu22.04"));
  // Without its DaemonSet, an earlier revision cannot be restored.
  node.labels.erase(std::string(names::kLabelDriverRevision));
  const FleetView forgotten = ViewFleet(pools, {node}, {}, {});
  EXPECT_FALSE(forgotten.pools[0].nodes[0].annotations.contains(names::kAnnotationDriverGood));
}

TEST(FleetTest, ANodeIsValidatedAfterItsAgentHasSeenTheNewDriver) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  node.gpu_ready = true;
  node.gpu_since = kPodCreated - 1s;
  const auto validated = [&] {
    return ViewFleet(pools, {node}, {PodOn("a", "r")}, {}).pools[0].nodes[0].validated;
  };
  EXPECT_FALSE(validated()) << "the condition is about the earlier driver";
  node.gpu_since = kPodCreated + 30s;
  EXPECT_TRUE(validated());
  node.gpu_ready = false;
  EXPECT_FALSE(validated());
}

TEST(FleetTest, AGpuThatWasUnhealthyBeforeTheUpgradeDoesNotFailIt) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  node.gpu_reason = names::kReasonGpuUnhealthy;
  node.gpu_written = kPodCreated + 30s;
  const auto now = [&] {
    return ViewFleet(pools, {node}, {PodOn("a", "r")}, {}).pools[0].nodes[0];
  };
  EXPECT_FALSE(now().validated) << "the new driver may be the cause";
  EXPECT_TRUE(now().gpus_unhealthy);
  node.annotations[std::string(names::kAnnotationUpgradeUnhealthyBefore)] = "true";
  EXPECT_TRUE(now().validated);
  node.gpu_written = kPodCreated - 1s;
  EXPECT_FALSE(now().validated) << "the condition is about the earlier driver";
  node.gpu_written = kPodCreated + 30s;
  node.gpu_reason = names::kReasonSmokeTestFailed;
  EXPECT_FALSE(now().validated);
}

TEST(FleetTest, AnUnwantedDriverReleasesItsNodesAfterTheirUpgrades) {
  const FleetView first =
      ViewFleet(FleetPools(kDriver550), {GpuNode("a", "default-ubuntu22-04")}, {}, {});
  const std::string revision = first.pools[0].nodes[0].wanted_revision;
  const auto pools = FleetPools("driver: {enabled: false}");
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  node.labels[std::string(names::kLabelUpgradeState)] = "drain-required";
  const FleetView busy = ViewFleet(pools, {node}, {PodOn("a", revision)}, first.revisions);
  EXPECT_TRUE(busy.patches.empty() && busy.releases.empty());
  EXPECT_EQ(busy.pools[0].nodes.size(), 1u);
  EXPECT_EQ(busy.daemonsets, first.daemonsets);
  node.labels[std::string(names::kLabelUpgradeState)] = "upgrade-done";
  const FleetView idle = ViewFleet(pools, {node}, {PodOn("a", revision)}, first.revisions);
  ASSERT_EQ(idle.releases.size(), 1u);
  EXPECT_TRUE(idle.releases[0].has_driver);
  EXPECT_EQ(idle.releases[0].patch.labels.at(std::string(names::kLabelDriverPool)), std::nullopt);
  EXPECT_TRUE(idle.pools[0].nodes.empty());
  // The node's label removes the driver, not the deletion of the DaemonSet.
  EXPECT_EQ(idle.daemonsets, first.daemonsets);
  EXPECT_TRUE(ViewFleet(pools, {node}, {}, first.revisions).daemonsets.empty());
}

TEST(FleetTest, AFailedNodeSaysWhyAndWhatHelps) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  node.labels[std::string(names::kLabelUpgradeState)] = "upgrade-failed";
  node.annotations[std::string(names::kAnnotationUpgradeProblem)] = "the driver was not ready";
  const FleetView view = ViewFleet(pools, {node}, {}, {});
  ASSERT_EQ(view.problems.size(), 1u);
  EXPECT_EQ(view.problems[0].reason, "DriverUpgradeFailed");
  EXPECT_THAT(view.problems[0].message, HasSubstr("the driver was not ready; the node stays"));
}

TEST(FleetTest, AnUpgradeStateOfAnotherToolIsAProblemOfItsNode) {
  const auto pools = FleetPools(kDriver550);
  FleetNode node = GpuNode("a", "default-ubuntu22-04");
  node.labels[std::string(names::kLabelUpgradeState)] = "node-maintenance-required";
  const FleetView view = ViewFleet(pools, {node}, {}, {});
  ASSERT_EQ(view.problems.size(), 1u);
  EXPECT_EQ(view.problems[0].reason, "UnknownUpgradeState");
  EXPECT_THAT(view.problems[0].message,
              HasSubstr("kubectl label node a nvidia.com/gpu-driver-upgrade-state-"));
}

TEST(PolicyTest, KeysAreThoseOfNvidiasChart) {
  const auto read = ReadPolicy(
      *ParseJson(R"({"autoUpgrade":false,"maxParallelUpgrades":0,"maxUnavailable":2,"canaries":1,
          "rollback":false,"waitForCompletion":{"podSelector":"a=b,c=d","timeoutSeconds":60},
          "gpuPodDeletion":{"timeoutSeconds":9,"deleteEmptyDir":true},
          "drain":{"enable":true,"force":true,"timeoutSeconds":8}})"));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const UpgradePolicy& policy = *read;
  EXPECT_FALSE(policy.auto_upgrade || policy.rollback);
  EXPECT_EQ(policy.max_parallel, 0);
  EXPECT_EQ(policy.max_unavailable, "2");
  EXPECT_TRUE(policy.drain && policy.force && policy.delete_empty_dir);
  EXPECT_EQ(policy.pod_deletion_timeout, 9s);
  EXPECT_EQ(policy.drain_timeout, 8s);
  EXPECT_EQ(policy.wait_for.at("c"), "d");
  EXPECT_EQ(ReadPolicy(Json::MakeObject())->max_unavailable, "25%");
}

}  // namespace
}  // namespace tessera::driver
