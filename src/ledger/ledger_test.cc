// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/ledger.h"

#include <gtest/gtest.h>

#include <set>

#include "api/names.h"
#include "src/device/node_annotation.h"
#include "src/ledger/testing/objects.h"

namespace tessera::ledger {
namespace {

using namespace std::chrono_literals;
using testing::BoundPod;
using testing::GpuNode;
using testing::GpuPod;
using testing::UuidOf;

class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override { Restart(); }
  void Restart(LedgerOptions options = {}) {
    ledger_ = ClusterLedger::Make(std::move(options), &clock_).value();
  }
  ClusterLedger::Query MakeQuery(const kube::PodObject& pod) {
    return ledger_->MakeQuery(pod).value();
  }
  bool Fits(const kube::PodObject& pod, std::string_view node) {
    ClusterLedger::Query query = MakeQuery(pod);
    return ledger_->Evaluate(query, node).fits;
  }
  std::string WhyUnfit(const kube::PodObject& pod, std::string_view node) {
    ClusterLedger::Query query = MakeQuery(pod);
    return std::string(ledger_->Evaluate(query, node).reason);
  }
  Result<ClusterLedger::Assumption> Assume(const kube::PodObject& pod, std::string_view node,
                                           Duration hold = 30s) {
    return ledger_->Assume(MakeQuery(pod), node, hold);
  }
  const PodEntry& Entry(const kube::PodObject& pod) { return ledger_->pods().at(pod.meta.uid); }
  int64_t FreeMilli() { return ledger_->cluster().free_milli(); }

  FakeClock clock_;
  std::unique_ptr<ClusterLedger> ledger_;
};

TEST_F(LedgerTest, ABoundPodHoldsTheGpusOfItsAnnotations) {
  ledger_->SetNode(GpuNode("n", 4));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "2"}});
  const auto assumed = Assume(pod, "n");
  ASSERT_TRUE(assumed.ok()) << assumed.status().ToString();
  ASSERT_EQ(assumed->assignment.containers.at("main").size(), 2u);
  EXPECT_EQ(FreeMilli(), 2000);
  // A restarted ledger has the same account.
  Restart();
  ledger_->SetPod(BoundPod(pod, "n", assumed->annotations));
  EXPECT_NE(Entry(pod).problem(), "");
  ledger_->SetNode(GpuNode("n", 4));
  EXPECT_EQ(Entry(pod).problem(), "");
  EXPECT_EQ(Entry(pod).assignment(), assumed->assignment);
  EXPECT_FALSE(Entry(pod).guessed());
  EXPECT_EQ(FreeMilli(), 2000);
}

TEST_F(LedgerTest, ReportsWhichNodesKubeSchedulerLeavesOut) {
  kube::NodeObject node = GpuNode("n", 4);
  const auto why_left_out = [&](const kube::NodeConstraints& constraints) {
    ledger_->SetNode(node);
    const PodRequest pod{.constraints = SharedValue(constraints)};
    const auto left_out = ClusterLedger::WhyLeftOut(pod, *ledger_->FindNode("n"));
    return std::string(left_out ? left_out->kind : "");
  };
  EXPECT_EQ(why_left_out({}), "");
  EXPECT_EQ(why_left_out({.selector = {{"kubernetes.io/hostname", "n"}}}), "");
  node.taints = {{"team", "ml", "NoSchedule"}};
  EXPECT_EQ(why_left_out({}), "taint");
  EXPECT_EQ(why_left_out({.tolerations = {{.key = "team", .any_value = true}}}), "");
  EXPECT_FALSE(ledger_->SetNode(node)) << "nothing has changed";
  node.taints.clear();
  EXPECT_TRUE(ledger_->SetNode(node)) << "a taint has gone";
  node.unschedulable = true;
  EXPECT_EQ(why_left_out({}), "cordoned");
  EXPECT_EQ(why_left_out({.tolerations = {{.any_value = true}}}), "");
  node.ready = false;
  EXPECT_EQ(why_left_out({.tolerations = {{.any_value = true}}}), "not-ready");
}

TEST_F(LedgerTest, ABoundPodKeepsItsAssumedGpus) {
  ledger_->SetNode(GpuNode("n", 2));
  const kube::PodObject pod = GpuPod("a", {{names::kResourceGpuMem, "8"}});
  ledger_->SetPod(pod);
  const auto assumed = Assume(pod, "n").value();
  ledger_->SetPod(pod);  // a watch event from before the binding
  EXPECT_EQ(Entry(pod).binding_state, BindingState::kAssumed);
  const auto place = Entry(pod).placed_id;
  ledger_->SetPod(BoundPod(pod, "n", assumed.annotations));
  EXPECT_EQ(Entry(pod).binding_state, BindingState::kBound);
  EXPECT_EQ(Entry(pod).placed_id, place);
  clock_.Advance(1h);
  EXPECT_TRUE(ledger_->DropExpiredAssumptions().empty());
  ledger_->RemovePod(pod.meta.uid);
  EXPECT_EQ(FreeMilli(), 2000);
}

TEST_F(LedgerTest, AssumptionsExpire) {
  ledger_->SetNode(GpuNode("n", 1));
  const kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  ASSERT_TRUE(Assume(pod, "n", 10s).ok());
  const kube::PodObject other = GpuPod("b", {{names::kResourceGpu, "1"}});
  EXPECT_FALSE(Fits(other, "n"));
  EXPECT_EQ(Assume(other, "n").status().code(), Code::kFailedPrecondition);
  clock_.Advance(9s);
  EXPECT_TRUE(ledger_->DropExpiredAssumptions().empty());
  clock_.Advance(1s);
  EXPECT_EQ(ledger_->DropExpiredAssumptions(), std::vector<std::string>{"ns/a"});
  EXPECT_TRUE(Fits(other, "n"));
  EXPECT_TRUE(ledger_->pods().empty());  // only Assume knew the pod
}

TEST_F(LedgerTest, ANewQueryDropsTheAssumption) {
  ledger_->SetNode(GpuNode("n", 1));
  const kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  ASSERT_TRUE(Assume(pod, "n").ok());
  EXPECT_TRUE(Fits(pod, "n"));
  EXPECT_TRUE(Assume(pod, "n").ok());
}

TEST_F(LedgerTest, APodThatBypassedTheSchedulerHoldsGuessedGpusUntilItsNodePublishes) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  ledger_->SetPod(BoundPod(pod, "n", {}));
  EXPECT_TRUE(Entry(pod).guessed());
  EXPECT_EQ(FreeMilli(), 1000);
  const std::string guess = Entry(pod).assignment().containers.at("main")[0].uuid;
  const std::string truth = UuidOf("n", guess == UuidOf("n", 0) ? 1 : 0);
  const device::Assignment published{{{"main", {{truth, kWholeGpu, GiB(80)}}}}};
  ledger_->SetPod(BoundPod(
      pod, "n",
      {{std::string(names::kAnnotationAssignment), device::EncodeAssignment(published).value()}}));
  EXPECT_FALSE(Entry(pod).guessed());
  EXPECT_EQ(Entry(pod).assignment().containers.at("main")[0].uuid, truth);
  EXPECT_EQ(FreeMilli(), 1000);
}

TEST_F(LedgerTest, GuessesTheMissingGpuOfAPodWithOneKnownGpu) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  kube::Container second = pod.containers[0];
  second.name = "second";
  pod.containers.push_back(second);
  for (const int gpu : {0, 1}) {
    const device::Assignment published{{{"second", {{UuidOf("n", gpu), kWholeGpu, GiB(80)}}}}};
    ledger_->SetPod(BoundPod(pod, "n",
                             {{std::string(names::kAnnotationAssignment),
                               device::EncodeAssignment(published).value()}}));
    EXPECT_EQ(FreeMilli(), 0);
    EXPECT_EQ(Entry(pod).assignment().containers.at("second")[0].uuid, UuidOf("n", gpu));
    EXPECT_EQ(Entry(pod).assignment().containers.at("main")[0].uuid, UuidOf("n", 1 - gpu));
  }
  // Another pod has the other GPU.
  ledger_->RemovePod(pod.meta.uid);
  const kube::PodObject other = GpuPod("b", {{names::kResourceGpu, "1"}});
  ledger_->SetPod(BoundPod(other, "n", Assume(other, "n").value().annotations));
  const std::string taken_uuid = Entry(other).assignment().containers.at("main")[0].uuid;
  const std::string free_uuid = UuidOf("n", taken_uuid == UuidOf("n", 0) ? 1 : 0);
  const device::Assignment published{{{"second", {{free_uuid, kWholeGpu, GiB(80)}}}}};
  ledger_->SetPod(BoundPod(
      pod, "n",
      {{std::string(names::kAnnotationAssignment), device::EncodeAssignment(published).value()}}));
  EXPECT_EQ(FreeMilli(), 0) << "the GPU that it holds is not free, although another one is missing";
  EXPECT_FALSE(Entry(pod).guessed());
  EXPECT_NE(Entry(pod).problem(), "");
  ledger_->RemovePod(pod.meta.uid);
  EXPECT_EQ(FreeMilli(), 1000);
}

TEST_F(LedgerTest, AForgedAnnotationTakesNoMoreThanTheRequest) {
  ledger_->SetNode(GpuNode("n", 2));
  const kube::PodObject pod = GpuPod("a", {{names::kResourceGpuMem, "8"}});
  const device::Assignment forged{
      {{"main", {{UuidOf("n", 0), kWholeGpu, GiB(80)}, {UuidOf("n", 1), kWholeGpu, GiB(80)}}}}};
  ledger_->SetPod(BoundPod(
      pod, "n",
      {{std::string(names::kAnnotationAssignment), device::EncodeAssignment(forged).value()}}));
  EXPECT_EQ(Entry(pod).problem(), "its annotations name 2 GPUs, but it requests 1");
  EXPECT_TRUE(Entry(pod).guessed());
  EXPECT_TRUE(Fits(GpuPod("b", {{names::kResourceGpu, "1"}}), "n"));
  EXPECT_FALSE(Fits(GpuPod("c", {{names::kResourceGpu, "2"}}), "n"));
  ledger_->SetPod(BoundPod(GpuPod("d", {{names::kResourceGpuMem, "8"}}), "n",
                           {{std::string(names::kAnnotationAssignment), "{\"version\":"}}));
  EXPECT_NE(ledger_->FindPod("ns", "d")->problem(), "");
}

TEST_F(LedgerTest, AnotherPodOfTheSameNameIsAnotherPod) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  ledger_->SetPod(BoundPod(pod, "n", Assume(pod, "n").value().annotations));
  kube::PodObject again = pod;
  again.meta.uid = Uid("another");
  EXPECT_TRUE(Fits(again, "n"));
  ledger_->SetPod(BoundPod(again, "n", Assume(again, "n").value().annotations));
  EXPECT_EQ(FreeMilli(), 0);
  ledger_->RemovePod(pod.meta.uid);
  EXPECT_EQ(FreeMilli(), 1000);
  EXPECT_EQ(Entry(again).problem(), "");
}

TEST_F(LedgerTest, ATerminatingPodHoldsItsGpuUntilItHasEnded) {
  ledger_->SetNode(GpuNode("n", 1));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  pod = BoundPod(pod, "n", Assume(pod, "n").value().annotations);
  pod.meta.deleting = true;
  ledger_->SetPod(pod);
  EXPECT_TRUE(Entry(pod).deleting);
  EXPECT_EQ(FreeMilli(), 0);
  pod.phase = kube::PodPhase::kSucceeded;
  ledger_->SetPod(pod);
  EXPECT_EQ(FreeMilli(), 1000);
  EXPECT_TRUE(ledger_->pods().empty());
}

TEST_F(LedgerTest, InitContainersDoNotCountBesideMainContainers) {
  ledger_->SetNode(GpuNode("n", 1));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpuMem, "7"}});
  kube::Container init = pod.containers[0];
  init.name = "prepare";
  init.kind = kube::ContainerKind::kInit;
  init.limits[std::string(names::kResourceGpuMem)] = "6";
  init.requests = init.limits;
  pod.containers.insert(pod.containers.begin(), init);
  ASSERT_TRUE(Assume(pod, "n").ok());
  const auto shares = SharesOf(Entry(pod));
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0].second.memory, GiB(7));
}

TEST_F(LedgerTest, AnInitContainersGpuStaysWithThePodUntilItEnds) {
  ledger_->SetNode(GpuNode("n", 3));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  kube::Container init = pod.containers[0];
  init.name = "prepare";
  init.kind = kube::ContainerKind::kInit;
  init.limits[std::string(names::kResourceGpu)] = "2";
  init.requests = init.limits;
  pod.containers.insert(pod.containers.begin(), init);
  const kube::PodObject bound = BoundPod(pod, "n", Assume(pod, "n").value().annotations);
  ledger_->SetPod(bound);
  const device::Assignment assigned = Entry(pod).assignment();
  EXPECT_EQ(FreeMilli(), 1000);
  // Same order as after a restart of the scheduler.
  ledger_->RemovePod(bound.meta.uid);
  ASSERT_EQ(FreeMilli(), 3000);
  ledger_->SetPod(bound);
  EXPECT_EQ(FreeMilli(), 1000);
  EXPECT_EQ(Entry(pod).problem(), "");
  EXPECT_FALSE(Entry(pod).guessed());
  EXPECT_EQ(Entry(pod).assignment(), assigned);
}

TEST_F(LedgerTest, SharedGpuIsNotGivenAsAWholeGpu) {
  ledger_->SetNode(GpuNode("n", 1));
  const kube::PodObject memory = GpuPod("a", {{names::kResourceGpuMem, "40"}});
  ASSERT_TRUE(Assume(memory, "n").ok());
  EXPECT_FALSE(Fits(GpuPod("b", {{names::kResourceGpu, "1"}}), "n"));
  const auto vcuda =
      GpuPod("c", {{names::kResourceVcudaCore, "30"}, {names::kResourceVcudaMemory, "160"}});
  ASSERT_TRUE(Assume(vcuda, "n").ok());  // 40 GiB
  EXPECT_NE(WhyUnfit(GpuPod("d", {{names::kResourceGpuMem, "1"}}), "n"), "");
}

TEST_F(LedgerTest, CpuIsCountedButNeverRejects) {
  ledger_->SetNode(GpuNode("n", 2, "80Gi", "4"));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  pod.containers[0].requests["cpu"] = "64";
  EXPECT_TRUE(Fits(pod, "n"));
  EXPECT_TRUE(Assume(pod, "n").ok());
  EXPECT_EQ(ledger_->cluster().node(0)->cpu_free, 4000 - 64000);
}

TEST_F(LedgerTest, ANodeThatLeavesAndReturnsHasItsPodsAgain) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  ledger_->SetPod(BoundPod(pod, "n", Assume(pod, "n").value().annotations));
  const device::Assignment assigned = Entry(pod).assignment();
  ledger_->RemoveNode("n");
  EXPECT_EQ(Entry(pod).problem(), "its node was deleted");
  EXPECT_FALSE(Fits(GpuPod("b", {{names::kResourceGpu, "1"}}), "n"));
  ledger_->SetNode(GpuNode("n", 2));
  EXPECT_EQ(Entry(pod).problem(), "");
  EXPECT_EQ(Entry(pod).assignment(), assigned);
  EXPECT_EQ(FreeMilli(), 1000);
}

TEST_F(LedgerTest, AnInvalidNodeAnnotationKeepsTheKnownGpus) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  ASSERT_TRUE(Assume(pod, "n").ok());
  kube::NodeObject bad = GpuNode("n", 2);
  bad.meta.annotations[std::string(names::kAnnotationDevices)] = "{\"version\":1,\"gpus\":7}";
  ledger_->SetNode(bad);
  EXPECT_NE(ledger_->nodes().at("n").problem, "");
  EXPECT_EQ(FreeMilli(), 1000);
  const kube::PodObject late = GpuPod("late", {{names::kResourceGpu, "1"}});
  EXPECT_EQ(WhyUnfit(late, "n"), ledger_->nodes().at("n").problem);
  EXPECT_EQ(Assume(late, "n").status().code(), Code::kFailedPrecondition);
  ledger_->SetNode(GpuNode("n", 2));
  EXPECT_TRUE(Fits(late, "n"));
  bad.meta.name = "other";
  ledger_->SetNode(bad);
  EXPECT_NE(WhyUnfit(GpuPod("b", {{names::kResourceGpu, "1"}}), "other"), "");
}

TEST_F(LedgerTest, QuotaCountsAssumedPods) {
  ledger_->SetNode(GpuNode("n", 4));
  ledger_->SetQuota(placement::ParseQuota(R"({"ns":{"quota":{"A100":1}}})").value());
  ASSERT_TRUE(
      Assume(GpuPod("a", {{names::kResourceVcudaCore, "60"}, {names::kResourceVcudaMemory, "10"}}),
             "n")
          .ok());
  const auto second =
      GpuPod("b", {{names::kResourceVcudaCore, "60"}, {names::kResourceVcudaMemory, "10"}});
  EXPECT_NE(WhyUnfit(second, "n").find("A100"), std::string::npos) << WhyUnfit(second, "n");
  EXPECT_EQ(Assume(second, "n").status().code(), Code::kResourceExhausted);
  kube::PodObject elsewhere = second;
  elsewhere.meta.ns = "unlimited";
  EXPECT_TRUE(Fits(elsewhere, "n"));
}

TEST_F(LedgerTest, QuotaUseHasNamespacesThatUseGpusOrHaveAQuota) {
  ledger_->SetNode(GpuNode("n", 4));
  ASSERT_TRUE(Assume(GpuPod("a", {{names::kResourceGpu, "2"}}), "n").ok());
  ledger_->SetQuota(placement::ParseQuota(R"({"idle":{"pool":["public"]}})").value());
  const auto uses = ledger_->QuotaUse();
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses.at("ns").used, (UseByModel{{"NVIDIA A100-SXM4-80GB", 2000}}));
  EXPECT_EQ(uses.at("ns").quota, placement::NamespaceQuota{});
  EXPECT_TRUE(uses.at("idle").used.empty());
  EXPECT_EQ(uses.at("idle").quota.pools.size(), 1u);
}

TEST_F(LedgerTest, AGuessMovesWhenAnotherPodHasTheGpu) {
  ledger_->SetNode(GpuNode("n", 2));
  const kube::PodObject guessed = GpuPod("a", {{names::kResourceGpu, "1"}});
  ledger_->SetPod(BoundPod(guessed, "n", {}));
  const auto publish = [&](const char* name, const std::string& gpu) {
    const device::Assignment assignment{{{"main", {{gpu, kWholeGpu, GiB(80)}}}}};
    const kube::PodObject pod = GpuPod(name, {{names::kResourceGpu, "1"}});
    ledger_->SetPod(BoundPod(pod, "n",
                             {{std::string(names::kAnnotationAssignment),
                               device::EncodeAssignment(assignment).value()}}));
  };
  const std::string first = Entry(guessed).assignment().containers.at("main")[0].uuid;
  publish("b", first);
  const std::string second = Entry(guessed).assignment().containers.at("main")[0].uuid;
  EXPECT_NE(second, first);
  EXPECT_TRUE(Entry(guessed).guessed());
  publish("c", second);
  EXPECT_NE(Entry(guessed).problem(), "") << "no GPU is free for the guessed pod";
  EXPECT_FALSE(Entry(guessed).placed_id);
}

TEST_F(LedgerTest, AMigSliceMayBeNamedByItsGpu) {
  kube::NodeObject node = GpuNode("n", 2);
  std::string& annotation = node.meta.annotations[std::string(names::kAnnotationDevices)];
  device::NodeInventory inventory = device::DecodeNodeInventory(annotation).value();
  for (device::Gpu& gpu : inventory.gpus) {
    gpu.mig.emplace();
    for (int i = 0; i < 2; ++i) {
      gpu.mig->push_back({.uuid = fmt::format("MIG-{}-{}", gpu.index, i),
                          .profile = "1g.10gb",
                          .gpu_instance = i + 1,
                          .memory = GiB(10)});
    }
  }
  annotation = device::EncodeNodeInventory(inventory).value();
  ledger_->SetNode(node);
  ASSERT_EQ(ledger_->FindNode("n")->problem, "");
  const auto slices = [&](std::string_view key, const std::string& uuid, const char* amount) {
    kube::PodObject pod = GpuPod("a", {{"nvidia.com/mig-1g.10gb", amount}});
    pod.meta.annotations[std::string(key)] = uuid;
    std::set<std::string> given;
    const auto assumed = Assume(pod, "n");
    if (!assumed.ok()) return given;
    for (const auto& share : assumed->assignment.containers.at("main")) given.insert(share.uuid);
    return given;
  };
  using Slices = std::set<std::string>;
  const std::string first = UuidOf("n", 0), second = UuidOf("n", 1);
  EXPECT_EQ(slices(names::kAnnotationGpuUuids, second, "2"), (Slices{"MIG-1-0", "MIG-1-1"}));
  EXPECT_EQ(slices(names::kAnnotationGpuUuids, second, "3"), Slices{});
  EXPECT_EQ(slices(names::kAnnotationGpuUuidsExcluded, first, "2"), (Slices{"MIG-1-0", "MIG-1-1"}));
  EXPECT_EQ(slices(names::kAnnotationGpuUuids, "MIG-0-1", "1"), Slices{"MIG-0-1"});
}

TEST_F(LedgerTest, QuotaUsesTheNodesLabelUnlessItMatchesItsGpus) {
  const auto fits = [&](const char* label, const char* quota) {
    kube::NodeObject node = GpuNode("n", 4);
    node.meta.labels[std::string(names::kLabelLegacyGpuModel)] = label;
    ledger_->SetNode(node);
    ledger_->SetQuota(
        placement::ParseQuota(fmt::format(R"({{"ns":{{"quota":{{"{}":1}}}}}})", quota)).value());
    return Fits(GpuPod("a", {{names::kResourceGpu, "1"}}), "n");
  };
  EXPECT_TRUE(fits("A100", "A100"));
  EXPECT_TRUE(fits("A100", "NVIDIA-A100-SXM4-80GB"));
  EXPECT_FALSE(fits("A100", "T4"));
  EXPECT_TRUE(fits("fast", "fast"));
  EXPECT_FALSE(fits("fast", "A100"));
}

TEST_F(LedgerTest, QuotaCountsMemoryOfPodsThatRequestOnlyMemory) {
  ledger_->SetNode(GpuNode("n", 4));
  ledger_->SetQuota(placement::ParseQuota(R"({"ns":{"quota":{"A100":1}}})").value());
  ASSERT_TRUE(Assume(GpuPod("a", {{names::kResourceGpuMem, "60"}}), "n").ok());
  EXPECT_FALSE(Fits(GpuPod("b", {{names::kResourceGpuMem, "30"}}), "n"));
  EXPECT_TRUE(Fits(GpuPod("c", {{names::kResourceGpuMem, "20"}}), "n"));
  ledger_->SetQuota(placement::ParseQuota(R"({"ns":{"quota":{"A100":0}}})").value());
  EXPECT_FALSE(Fits(GpuPod("d", {{names::kResourceGpuMem, "1"}}), "n"));
}

// The Node object is deleted and created again while the binding is in flight or was not observed
// yet.
TEST_F(LedgerTest, AnAssumedPodHoldsItsGpusWhenItsNodeReturns) {
  ledger_->SetNode(GpuNode("n", 1));
  const kube::PodObject pod = GpuPod("a", {{names::kResourceGpu, "1"}});
  const auto assumed = Assume(pod, "n");
  ASSERT_TRUE(assumed.ok());
  ledger_->RemoveNode("n");
  ledger_->SetNode(GpuNode("n", 1));
  EXPECT_FALSE(Fits(GpuPod("b", {{names::kResourceGpu, "1"}}), "n"));
  ledger_->SetPod(BoundPod(pod, "n", assumed->annotations));
  EXPECT_EQ(Entry(pod).problem(), "");
  EXPECT_EQ(Entry(pod).assignment(), assumed->assignment);
  ledger_->RemovePod(pod.meta.uid);
  EXPECT_TRUE(Fits(GpuPod("b", {{names::kResourceGpu, "1"}}), "n"));
}

}  // namespace
}  // namespace tessera::ledger
