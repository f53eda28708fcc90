// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/upgrade.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/names.h"

namespace tessera::driver {
namespace {

using namespace std::chrono_literals;
using Kind = UpgradeAction::Kind;

const WallTime kNow{std::chrono::seconds(1'800'000'000)};

UpgradeNode NodeWith(const std::string& name, UpgradeState state = UpgradeState::kUnknown) {
  UpgradeNode node;
  node.name = name;
  if (state != UpgradeState::kUnknown) {
    node.labels[std::string(names::kLabelUpgradeState)] = std::string(NameOf(state));
    node.annotations[std::string(names::kAnnotationUpgradeSince)] = "1800000000";
  }
  node.driver = DriverPod{
      .ns = "gpu", .name = fmt::format("driver-{}", name), .revision = "old", .ready = true};
  node.wanted_revision = "new";
  node.annotations[std::string(names::kAnnotationDriverGood)] = "old";
  return node;
}

UpgradeStep StepOf(const UpgradeNode& node, const UpgradePolicy& policy = {}, WallTime now = kNow) {
  return NextUpgradeStep(policy, {node}, now);
}

// The state that the only action sets; "" for another action or none.
std::string StateAfter(const UpgradeNode& node, const UpgradePolicy& policy = {},
                       WallTime now = kNow) {
  const UpgradeStep step = StepOf(node, policy, now);
  if (step.actions.size() != 1) return "";
  const auto state = step.actions[0].labels.find(names::kLabelUpgradeState);
  return state != step.actions[0].labels.end() ? state->second.value_or("-") : "";
}

TEST(UpgradeStateTest, StatesHaveNvidiasNamesAndAreReadBackFromThem) {
  for (int i = 0; i <= static_cast<int>(UpgradeState::kFailed); ++i) {
    const auto state = static_cast<UpgradeState>(i);
    EXPECT_EQ(UpgradeStateFromName(NameOf(state)), state);
  }
  EXPECT_EQ(NameOf(UpgradeState::kPodDeletionRequired), "pod-deletion-required");
  EXPECT_FALSE(UpgradeStateFromName("node-maintenance-required"));
}

TEST(UpgradePolicyTest, InvalidFieldsAreNamed) {
  UpgradePolicy policy;
  EXPECT_TRUE(CheckPolicy(policy).ok());
  policy.max_unavailable = "a lot";
  EXPECT_NE(CheckPolicy(policy).message().find("maxUnavailable"), std::string::npos);
  policy.max_unavailable = "101%";
  EXPECT_FALSE(CheckPolicy(policy).ok());
  policy.max_unavailable = "3";
  policy.max_parallel = -1;
  EXPECT_NE(CheckPolicy(policy).message().find("maxParallelUpgrades"), std::string::npos);
}

TEST(UpgradePolicyTest, PercentagesAreRoundedUpAndNeverZero) {
  UpgradePolicy policy;
  EXPECT_EQ(MaxUnavailable(policy, 10), 3);
  EXPECT_EQ(MaxUnavailable(policy, 1), 1);
  policy.max_unavailable = "0";
  EXPECT_EQ(MaxUnavailable(policy, 10), 1);
  policy.max_unavailable = "2";
  EXPECT_EQ(MaxUnavailable(policy, 10), 2);
}

TEST(UpgradeTest, ANodeWithTheWantedDriverIsDoneAndThenNothingIsWritten) {
  UpgradeNode node = NodeWith("a");
  node.driver->revision = "new";
  EXPECT_EQ(StateAfter(node), "") << "not validated yet";
  node.validated = true;
  EXPECT_EQ(StateAfter(node), "upgrade-done");
  node.labels[std::string(names::kLabelUpgradeState)] = "upgrade-done";
  EXPECT_TRUE(StepOf(node).actions.empty());
}

TEST(UpgradeTest, ANodePassesThroughTheUpgradeStatesOfNvidia) {
  UpgradePolicy policy{.wait_for = {{"a", "b"}}, .drain = true};
  EXPECT_EQ(StateAfter(NodeWith("a")), "upgrade-required");
  EXPECT_EQ(StateAfter(NodeWith("a", UpgradeState::kUpgradeRequired)), "cordon-required");

  UpgradeNode node = NodeWith("a", UpgradeState::kCordonRequired);
  const UpgradeStep cordon = StepOf(node);
  ASSERT_EQ(cordon.actions.size(), 1u);
  EXPECT_EQ(cordon.actions[0].kind, Kind::kCordon);
  EXPECT_EQ(cordon.actions[0].annotations.at(std::string(names::kAnnotationUpgradeCordoned)),
            "true");
  node.unschedulable = true;
  EXPECT_EQ(StateAfter(node, policy), "wait-for-jobs-required");
  EXPECT_EQ(StateAfter(NodeWith("a", UpgradeState::kWaitForJobsRequired), policy),
            "pod-deletion-required");
  EXPECT_EQ(StateAfter(NodeWith("a", UpgradeState::kPodDeletionRequired), policy),
            "drain-required");
  EXPECT_EQ(StateAfter(NodeWith("a", UpgradeState::kDrainRequired), policy),
            "pod-restart-required");

  node = NodeWith("a", UpgradeState::kPodRestartRequired);
  const UpgradeStep restart = StepOf(node);
  ASSERT_EQ(restart.actions.size(), 1u);
  EXPECT_EQ(restart.actions[0].kind, Kind::kDeletePod);
  EXPECT_EQ(restart.actions[0].pod, "driver-a");
  node.driver->revision = "new";
  EXPECT_EQ(StateAfter(node), "validation-required");
  node.labels[std::string(names::kLabelUpgradeState)] = "validation-required";
  EXPECT_EQ(StateAfter(node), "");
  node.validated = true;
  EXPECT_EQ(StateAfter(node), "uncordon-required");
}

TEST(UpgradeTest, TheFirstStepRecordsWhetherGpusWereUnhealthy) {
  const std::string key(names::kAnnotationUpgradeUnhealthyBefore);
  UpgradeNode node = NodeWith("a", UpgradeState::kUpgradeRequired);
  node.gpus_unhealthy = true;
  EXPECT_EQ(StepOf(node).actions.at(0).annotations.at(key), "true");
  node.gpus_unhealthy = false;
  EXPECT_FALSE(StepOf(node).actions.at(0).annotations.contains(key));
  node.annotations[key] = "true";
  EXPECT_EQ(StepOf(node).actions.at(0).annotations.at(key), std::nullopt)
      << "of an earlier upgrade";
  UpgradeNode ending = NodeWith("a", UpgradeState::kUncordonRequired);
  ending.annotations[key] = "true";
  EXPECT_EQ(StepOf(ending).actions.at(0).annotations.at(key), std::nullopt);
}

TEST(UpgradeTest, OnlyTheCordonOfTheOperatorIsRemoved) {
  UpgradeNode own_cordon = NodeWith("a", UpgradeState::kUncordonRequired);
  own_cordon.driver->revision = "new";
  own_cordon.validated = own_cordon.unschedulable = true;
  UpgradeNode foreign_cordon = own_cordon;
  own_cordon.annotations[std::string(names::kAnnotationUpgradeCordoned)] = "true";
  const UpgradeStep step = StepOf(own_cordon);
  ASSERT_EQ(step.actions.size(), 1u);
  EXPECT_EQ(step.actions[0].kind, Kind::kUncordon);
  EXPECT_EQ(step.actions[0].annotations.at(std::string(names::kAnnotationUpgradeCordoned)),
            std::nullopt);
  EXPECT_EQ(StateAfter(foreign_cordon), "upgrade-done") << "it stays cordoned";

  UpgradeNode before = NodeWith("a", UpgradeState::kCordonRequired);
  before.unschedulable = true;
  const UpgradeStep noted = StepOf(before);
  ASSERT_EQ(noted.actions.size(), 1u);
  EXPECT_EQ(noted.actions[0].annotations.at(std::string(names::kAnnotationInitiallyUnschedulable)),
            "true");
}

TEST(UpgradeTest, PodsWithGpusAreEvictedAndOthersOnlyWhenDraining) {
  UpgradeNode node = NodeWith("a", UpgradeState::kPodDeletionRequired);
  node.pods = {{.ns = "d", .name = "gpu", .uses_gpu = true, .controlled = true},
               {.ns = "d", .name = "web", .controlled = true},
               {.ns = "d", .name = "ended", .uses_gpu = true, .ended = true},
               {.ns = "d", .name = "agent", .uses_gpu = true, .is_daemon = true}};
  UpgradeStep step = StepOf(node);
  ASSERT_EQ(step.actions.size(), 1u);
  EXPECT_EQ(step.actions[0].kind, Kind::kEvict);
  EXPECT_EQ(step.actions[0].pod, "gpu");
  node.pods[0].deleting = true;
  EXPECT_TRUE(StepOf(node).actions.empty()) << "the pod is being deleted, and the node waits";
  ASSERT_TRUE(StepOf(node).next);
  EXPECT_EQ(*StepOf(node).next, kNow + 5min);

  node.labels[std::string(names::kLabelUpgradeState)] = "drain-required";
  node.pods.erase(node.pods.begin());
  step = StepOf(node, {.drain = true});
  ASSERT_EQ(step.actions.size(), 1u);
  EXPECT_EQ(step.actions[0].pod, "web");
  node.pods[0].skips_drain = true;
  EXPECT_EQ(StateAfter(node, {.drain = true}), "pod-restart-required");
}

TEST(UpgradeTest, NoPodIsEvictedFromANodeWithAPodThatMustStay) {
  UpgradeNode node = NodeWith("a", UpgradeState::kPodDeletionRequired);
  node.pods = {{.ns = "d", .name = "bare", .uses_gpu = true},
               {.ns = "d", .name = "gpu", .uses_gpu = true, .controlled = true}};
  EXPECT_TRUE(StepOf(node).actions.empty()) << "no pod is evicted in vain";
  const UpgradeStep late = StepOf(node, {}, kNow + 5min);
  ASSERT_EQ(late.actions.size(), 1u);
  EXPECT_EQ(late.actions[0].labels.at(std::string(names::kLabelUpgradeState)), "uncordon-required");
  EXPECT_NE(late.actions[0].reason.find("d/bare"), std::string::npos);
  EXPECT_TRUE(late.actions[0].warning);
  EXPECT_EQ(StepOf(node, {.force = true}).actions.size(), 2u);
}

TEST(UpgradeTest, WithForceAnEvictionThatABudgetBlocksBecomesADeletion) {
  UpgradeNode node = NodeWith("a", UpgradeState::kPodDeletionRequired);
  node.pods = {{.ns = "d", .name = "gpu", .uses_gpu = true, .controlled = true}};
  EXPECT_EQ(StateAfter(node, {}, kNow + 5min), "uncordon-required");
  const UpgradeStep forced = StepOf(node, {.force = true}, kNow + 5min);
  ASSERT_EQ(forced.actions.size(), 1u);
  EXPECT_EQ(forced.actions[0].kind, Kind::kDeletePod);
  EXPECT_EQ(StateAfter(node, {.force = true}, kNow + 10min), "uncordon-required");
}

TEST(UpgradeTest, ADriverThatIsNotReadyInTimeIsRolledBackToTheLastGoodOne) {
  UpgradeNode node = NodeWith("a", UpgradeState::kPodRestartRequired);
  node.driver->revision = "new";
  node.driver->ready = false;
  EXPECT_EQ(StateAfter(node), "");
  const UpgradeStep late = StepOf(node, {}, kNow + 20min);
  ASSERT_EQ(late.actions.size(), 1u);
  EXPECT_EQ(late.actions[0].labels.at(std::string(names::kLabelDriverRevision)), "old");
  EXPECT_EQ(late.actions[0].annotations.at(std::string(names::kAnnotationDriverFailed)), "new");

  node.driver->restarts = 11;
  EXPECT_EQ(StepOf(node).actions.size(), 1u)
      << "the upgrade does not wait for a container that fails again and again";

  // Rolled back: the old driver is the target now.
  node.labels[std::string(names::kLabelDriverRevision)] = "old";
  node.annotations[std::string(names::kAnnotationDriverFailed)] = "new";
  EXPECT_EQ(StepOf(node).actions.at(0).kind, Kind::kDeletePod);
  node.driver = DriverPod{.ns = "gpu", .name = "b", .revision = "old", .ready = true};
  EXPECT_EQ(StateAfter(node), "validation-required");
  node.labels[std::string(names::kLabelUpgradeState)] = "uncordon-required";
  node.validated = true;
  EXPECT_EQ(StateAfter(node), "upgrade-failed");
  node.labels[std::string(names::kLabelUpgradeState)] = "upgrade-failed";
  EXPECT_TRUE(StepOf(node).actions.empty()) << "the failed revision is not retried";
  node.wanted_revision = "newer";
  EXPECT_EQ(StateAfter(node), "upgrade-required");
  node.labels[std::string(names::kLabelUpgradeState)] = "pod-restart-required";
  EXPECT_EQ(StepOf(node).actions.at(0).labels.at(std::string(names::kLabelDriverRevision)),
            std::nullopt);
}

TEST(UpgradeTest, AnEarlierDriverThatIsLateKeepsTheCauseOfTheRollback) {
  UpgradeNode node = NodeWith("a", UpgradeState::kPodRestartRequired);
  node.labels[std::string(names::kLabelDriverRevision)] = "old";
  node.annotations[std::string(names::kAnnotationDriverFailed)] = "new";
  node.annotations[std::string(names::kAnnotationUpgradeProblem)] = "the driver was not ready";
  node.annotations[std::string(names::kAnnotationUpgradeCordoned)] = "true";
  node.unschedulable = true;
  node.driver->ready = false;
  const UpgradeStep late = StepOf(node, {}, kNow + 20min);
  ASSERT_EQ(late.actions.size(), 1u);
  EXPECT_EQ(late.actions[0].labels.at(std::string(names::kLabelUpgradeState)), "upgrade-failed");
  EXPECT_EQ(late.actions[0].annotations.at(std::string(names::kAnnotationUpgradeProblem)),
            "the driver was not ready; after the rollback, the driver was not ready in time");

  node.labels[std::string(names::kLabelUpgradeState)] = "upgrade-failed";
  EXPECT_TRUE(StepOf(node).actions.empty()) << "a node without a working driver is uncordoned";
  node.driver->ready = true;
  node.validated = true;
  EXPECT_EQ(StateAfter(node), "uncordon-required");
  node.labels[std::string(names::kLabelUpgradeState)] = "uncordon-required";
  EXPECT_EQ(StepOf(node).actions.at(0).kind, Kind::kUncordon);
  node.unschedulable = false;
  node.annotations.erase(std::string(names::kAnnotationUpgradeCordoned));
  EXPECT_EQ(StateAfter(node), "upgrade-failed");
}

TEST(UpgradeTest, AFailedRevisionIsTriedAgainOnRequest) {
  UpgradeNode node = NodeWith("a", UpgradeState::kFailed);
  node.annotations[std::string(names::kAnnotationDriverFailed)] = "new";
  EXPECT_TRUE(StepOf(node).actions.empty());
  node.annotations[std::string(names::kAnnotationUpgradeRequested)] = "true";
  const UpgradeStep step = StepOf(node);
  ASSERT_EQ(step.actions.size(), 1u);
  EXPECT_EQ(step.actions[0].labels.at(std::string(names::kLabelUpgradeState)), "upgrade-required");
  EXPECT_EQ(step.actions[0].annotations.at(std::string(names::kAnnotationDriverFailed)),
            std::nullopt);
}

TEST(UpgradeTest, WithoutAnEarlierDriverTheNodeFailsAndKeepsItsCordon) {
  UpgradeNode node = NodeWith("a", UpgradeState::kValidationRequired);
  node.annotations.erase(std::string(names::kAnnotationDriverGood));
  node.driver->revision = "new";
  EXPECT_EQ(StateAfter(node, {}, kNow + 10min), "upgrade-failed");
  node.labels[std::string(names::kLabelUpgradeState)] = "upgrade-failed";
  node.annotations[std::string(names::kAnnotationDriverFailed)] = "new";
  EXPECT_TRUE(StepOf(node).actions.empty());
  node.validated = true;  // it was slow
  EXPECT_EQ(StateAfter(node), "uncordon-required");
}

TEST(UpgradeTest, ASkippedNodeAndAnUnreachableNodeAreNotUpgraded) {
  UpgradeNode node = NodeWith("a");
  node.labels[std::string(names::kLabelUpgradeSkip)] = "true";
  EXPECT_TRUE(StepOf(node).actions.empty());
  node = NodeWith("a", UpgradeState::kUpgradeRequired);
  node.ready = false;
  EXPECT_TRUE(StepOf(node).actions.empty());
  node = NodeWith("a");
  node.labels[std::string(names::kLabelUpgradeState)] = "node-maintenance-required";
  EXPECT_TRUE(StepOf(node).actions.empty()) << "another operator's state";
  // Such a node delays no other node.
  const UpgradeStep step = NextUpgradeStep(
      {.max_parallel = 1}, {node, NodeWith("b", UpgradeState::kUpgradeRequired)}, kNow);
  ASSERT_EQ(step.actions.size(), 1U);
  EXPECT_EQ(step.actions[0].node, "b");
}

TEST(UpgradeTest, WithoutAutoUpgradeANodeUpgradesOnRequest) {
  UpgradeNode node = NodeWith("a");
  EXPECT_TRUE(StepOf(node, {.auto_upgrade = false}).actions.empty());
  node.annotations[std::string(names::kAnnotationUpgradeRequested)] = "true";
  EXPECT_EQ(StateAfter(node, {.auto_upgrade = false}), "upgrade-required");
}

TEST(UpgradeTest, ANodeThatWantsNoDriverAnyMoreIsUncordoned) {
  UpgradeNode node = NodeWith("a", UpgradeState::kDrainRequired);
  node.wanted_revision.clear();
  EXPECT_EQ(StateAfter(node), "uncordon-required");
  node.labels[std::string(names::kLabelUpgradeState)] = "uncordon-required";
  EXPECT_EQ(StepOf(node).actions.at(0).labels.at(std::string(names::kLabelUpgradeState)),
            std::nullopt);
}

TEST(UpgradeTest, AClockThatRanBackwardsDoesNotExpireADeadline) {
  UpgradeNode node = NodeWith("a", UpgradeState::kPodRestartRequired);
  node.driver->revision = "new";
  node.driver->ready = false;
  const UpgradeStep step = StepOf(node, {}, kNow - 24h);
  EXPECT_TRUE(step.actions.empty());
  EXPECT_EQ(step.next, kNow - 24h + 20min);
}

TEST(UpgradeTest, AStateWithoutAStartTimeStartsNow) {
  UpgradeNode node = NodeWith("a", UpgradeState::kPodRestartRequired);
  node.driver->revision = "new";
  node.driver->ready = false;
  node.annotations[std::string(names::kAnnotationUpgradeSince)] = "yesterday";
  const UpgradeStep step = StepOf(node);
  ASSERT_EQ(step.actions.size(), 1u);
  EXPECT_EQ(step.actions[0].annotations.at(std::string(names::kAnnotationUpgradeSince)),
            "1800000000");
}

std::vector<UpgradeNode> WaitingNodes(int count) {
  std::vector<UpgradeNode> nodes;
  for (int i = 0; i < count; ++i)
    nodes.push_back(NodeWith(fmt::format("n{}", i), UpgradeState::kUpgradeRequired));
  return nodes;
}

size_t CountBeginning(const UpgradePolicy& policy, const std::vector<UpgradeNode>& nodes) {
  return NextUpgradeStep(policy, nodes, kNow).actions.size();
}

TEST(UpgradeFleetTest, LimitsBoundHowManyNodesBegin) {
  EXPECT_EQ(CountBeginning({}, WaitingNodes(8)), 1u);
  EXPECT_EQ(CountBeginning({.max_parallel = 0}, WaitingNodes(8)), 2u) << "25% of 8";
  EXPECT_EQ(CountBeginning({.max_parallel = 3, .max_unavailable = "100%"}, WaitingNodes(8)), 3u);
  std::vector<UpgradeNode> nodes = WaitingNodes(8);
  nodes[0].labels[std::string(names::kLabelUpgradeState)] = "drain-required";
  const UpgradeStep step = NextUpgradeStep({}, nodes, kNow);
  EXPECT_NE(step.blocked, "");
  EXPECT_EQ(step.counts.in_progress, 1);
  EXPECT_EQ(step.counts.pending, 7);
}

TEST(UpgradeFleetTest, NodesThatOthersMadeUnavailableOnlySlowTheUpgradeDown) {
  std::vector<UpgradeNode> nodes = WaitingNodes(8);
  for (int i = 0; i < 4; ++i) nodes[i].ready = false;
  EXPECT_EQ(CountBeginning({.max_parallel = 0}, nodes), 1u);
}

TEST(UpgradeFleetTest, TooManyFailedNodesStopTheUpgrade) {
  std::vector<UpgradeNode> nodes = WaitingNodes(8);
  const auto fail = [&](int i) {
    nodes[i].labels[std::string(names::kLabelUpgradeState)] = "upgrade-failed";
    nodes[i].annotations[std::string(names::kAnnotationDriverFailed)] = "new";
    nodes[i].unschedulable = true;
  };
  fail(0);
  fail(1);
  EXPECT_EQ(CountBeginning({}, nodes), 1u);
  EXPECT_EQ(CountBeginning({.max_parallel = 0}, nodes), 2u)
      << "failed nodes do not count as unavailable";
  fail(2);
  const UpgradeStep step = NextUpgradeStep({}, nodes, kNow);
  EXPECT_TRUE(step.actions.empty());
  EXPECT_NE(step.blocked.find("3 nodes failed"), std::string::npos);
}

TEST(UpgradeFleetTest, CanariesUpgradeFirstAndAFailedCanaryStopsTheUpgrade) {
  const UpgradePolicy policy{.max_parallel = 0, .max_unavailable = "100%", .canaries = 2};
  std::vector<UpgradeNode> nodes = WaitingNodes(8);
  EXPECT_EQ(CountBeginning(policy, nodes), 2u);
  for (int i = 0; i < 2; ++i) {
    nodes[i].labels[std::string(names::kLabelUpgradeState)] = "upgrade-done";
    nodes[i].driver->revision = "new";
    nodes[i].validated = true;
  }
  EXPECT_EQ(CountBeginning(policy, nodes), 6u);
  nodes[1].labels[std::string(names::kLabelUpgradeState)] = "upgrade-failed";
  nodes[1].annotations[std::string(names::kAnnotationDriverFailed)] = "new";
  const UpgradeStep step = NextUpgradeStep(policy, nodes, kNow);
  EXPECT_NE(step.blocked.find("canary n1"), std::string::npos) << step.blocked;
}

TEST(UpgradePlanTest, ThePlanNamesOrderPodsAndObstacles) {
  std::vector<UpgradeNode> nodes = {NodeWith("a"), NodeWith("b"), NodeWith("c"), NodeWith("d")};
  nodes[1].pods = {{.ns = "ml", .name = "train-0", .uses_gpu = true, .controlled = true}};
  nodes[2].pods = {{.ns = "ml", .name = "bare", .uses_gpu = true}};
  nodes[3].labels[std::string(names::kLabelUpgradeSkip)] = "true";
  EXPECT_EQ(PlanText({.canaries = 1}, nodes, kNow),
            "driver upgrade of 3 of 4 nodes, 1 at once, at most 25% unavailable, 1 canaries first\n"
            "  1. a: old -> new\n"
            "  2. b: old -> new; evicts ml/train-0\n"
            "  3. c: old -> new; gives up: pod ml/bare has no controller that replaces it: delete "
            "the pod, or set driver.upgradePolicy.gpuPodDeletion.force=true\n"
            "  not d: it has the label nvidia.com/gpu-driver-upgrade.skip=true\n");
  UpgradeNode named = NodeWith("a");
  named.driver->version = "550.1";
  named.wanted_version = "560.1";
  EXPECT_NE(PlanText({}, {named}, kNow).find("a: 550.1 -> 560.1\n"), std::string::npos);
  named.wanted_version = "550.1";
  EXPECT_NE(PlanText({}, {named}, kNow).find("550.1 -> 550.1 with other settings\n"),
            std::string::npos);
  EXPECT_EQ(nodes[0].labels.size(), 0u) << "the plan has changed its input";
}

TEST(UpgradeTest, ARolledBackNodeIsDoneWhenItsDriverIsWantedAgain) {
  UpgradeNode node = NodeWith("a", UpgradeState::kFailed);
  node.labels[std::string(names::kLabelDriverRevision)] = "old";
  node.annotations[std::string(names::kAnnotationDriverFailed)] = "new";
  node.validated = true;
  EXPECT_EQ(StateAfter(node), "") << "the driver that failed is still wanted";
  node.wanted_revision = "old";
  EXPECT_EQ(StateAfter(node), "uncordon-required");
}

TEST(UpgradePlanTest, ThePlanHasTheOrderInWhichWaitingNodesBegin) {
  // Another driver failed on node a. Node b has not begun to upgrade.
  std::vector<UpgradeNode> nodes = {NodeWith("a", UpgradeState::kFailed),
                                    NodeWith("b", UpgradeState::kUpgradeRequired)};
  nodes[0].annotations[std::string(names::kAnnotationDriverFailed)] = "other";
  const std::string text = PlanText({.canaries = 1}, nodes, kNow);
  EXPECT_NE(text.find("  1. a: old -> new\n  2. b: old -> new\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera::driver
