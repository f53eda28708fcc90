// SPDX-License-Identifier: Apache-2.0
// Tests assumptions, reports, quotas and the amounts counted for a pod.
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/device/node_annotation.h"
#include "src/ledger/ledger.h"
#include "src/ledger/testing/objects.h"

namespace tessera::ledger {
namespace {

using namespace std::chrono_literals;
using testing::BoundPod;
using testing::GpuNode;
using testing::GpuPod;
using testing::UuidOf;

class LedgerPodsTest : public ::testing::Test {
 protected:
  ClusterLedger::Query MakeQuery(const kube::PodObject& pod) {
    return ledger_->MakeQuery(pod).value();
  }
  bool Fits(const kube::PodObject& pod) {
    ClusterLedger::Query query = MakeQuery(pod);
    return ledger_->Evaluate(query, "n").fits;
  }
  Result<ClusterLedger::Assumption> Assume(const kube::PodObject& pod, Duration hold = 30s) {
    return ledger_->Assume(MakeQuery(pod), "n", hold);
  }
  const PodEntry& Entry(const kube::PodObject& pod) { return ledger_->pods().at(pod.meta.uid); }
  int64_t CpuFree() { return ledger_->cluster().node(ledger_->FindNode("n")->id)->cpu_free; }
  static kube::PodObject Whole(const std::string& name) {
    return GpuPod(name, {{names::kResourceGpu, "1"}});
  }
  static kube::PodObject Assigned(kube::PodObject pod, const device::Assignment& assignment) {
    return BoundPod(std::move(pod), "n",
                    {{std::string(names::kAnnotationAssignment),
                      device::EncodeAssignment(assignment).value()}});
  }
  void SetQuota(std::string_view text) { ledger_->SetQuota(placement::ParseQuota(text).value()); }
  // A node whose GPUs were changed by `edit`.
  template <typename Edit>
  static kube::NodeObject Edited(int gpus, Edit edit) {
    kube::NodeObject node = GpuNode("n", gpus);
    std::string& text = node.meta.annotations[std::string(names::kAnnotationDevices)];
    device::NodeInventory inventory = device::DecodeNodeInventory(text).value();
    edit(inventory.gpus);
    text = device::EncodeNodeInventory(inventory).value();
    return node;
  }

  FakeClock clock_;
  std::unique_ptr<ClusterLedger> ledger_ = ClusterLedger::Make({}, &clock_).value();
};

TEST_F(LedgerPodsTest, AnAssumptionLastsUntilItsExtensionEnds) {
  ledger_->SetNode(GpuNode("n", 1));
  const kube::PodObject pod = Whole("a");
  ASSERT_TRUE(Assume(pod, 10s).ok());
  clock_.Advance(9s);
  ledger_->ExtendAssumption(pod.meta.uid, 10s);
  ledger_->ExtendAssumption(Uid("unknown"), 10s);
  clock_.Advance(9s);
  EXPECT_TRUE(ledger_->DropExpiredAssumptions().empty());
  clock_.Advance(1s);
  EXPECT_EQ(ledger_->DropExpiredAssumptions(), std::vector<std::string>{"ns/a"});
}

TEST_F(LedgerPodsTest, TheAssumptionOfAnUnknownPodCanBeDropped) {
  ledger_->SetNode(GpuNode("n", 1));
  ASSERT_TRUE(Assume(Whole("a")).ok());
  ledger_->DropAssumption(Uid("unknown"));
  EXPECT_FALSE(Fits(Whole("b")));
}

TEST_F(LedgerPodsTest, APodThatIsBoundIsNotAssumedAgain) {
  ledger_->SetNode(GpuNode("n", 2));
  const kube::PodObject pod = Whole("a");
  const auto query = MakeQuery(pod);
  ledger_->SetPod(BoundPod(pod, "n", Assume(pod).value().annotations));
  EXPECT_EQ(ledger_->Assume(query, "n", 30s).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Entry(pod).binding_state, BindingState::kBound);
}

TEST_F(LedgerPodsTest, APodIsFoundByNamespaceAndName) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject a = Whole("a"), other = Whole("a");
  other.meta.ns = "other";
  other.meta.uid = Uid("uid-0");  // before the first
  ledger_->SetPod(other);
  ledger_->SetPod(Whole("0"));
  ledger_->SetPod(a);
  ASSERT_NE(ledger_->FindPod("ns", "a"), nullptr);
  EXPECT_EQ(ledger_->FindPod("ns", "a")->request.uid, Uid("uid-a"));
  EXPECT_EQ(ledger_->FindPod("ns", "b"), nullptr);
  EXPECT_EQ(ledger_->FindPod("none", "a"), nullptr);
}

TEST_F(LedgerPodsTest, SharesAreTheMaximumOfMainContainersAndInitContainers) {
  PodEntry pod;
  device::DeviceRequest request;
  device::Assignment assignment;
  const auto add = [&](const char* name, device::Phase phase, int milli, int gib) {
    request.containers.push_back({.name = name, .phase = phase});
    assignment.containers[name] = {{"G", MilliGpu(milli), GiB(gib)}};
    pod.request.devices = SharedValue(request);
    pod.SetAssignment(assignment);
  };
  add("prepare", device::Phase::kInit, 900, 12);
  add("a", device::Phase::kMain, 300, 10);
  add("b", device::Phase::kMain, 400, 5);
  ASSERT_EQ(SharesOf(pod).size(), 1u);
  EXPECT_EQ(SharesOf(pod)[0].second, (device::Share{MilliGpu(900), GiB(15)}));
  assignment.containers["prepare"] = {{"G", MilliGpu(100), GiB(20)}};
  pod.SetAssignment(assignment);
  EXPECT_EQ(pod.assignment(), assignment);
  EXPECT_EQ(SharesOf(pod)[0].second, (device::Share{MilliGpu(700), GiB(20)}));
  add("c", device::Phase::kSidecar, 500, 1);
  EXPECT_EQ(SharesOf(pod)[0].second, (device::Share{kWholeGpu, GiB(20)}));
}

TEST_F(LedgerPodsTest, EqualPartsOfPodsAndNodesAreStoredOnce) {
  for (const char* node : {"n", "other"}) ledger_->SetNode(GpuNode(node, 2));
  EXPECT_EQ(&ledger_->FindNode("n")->node.inventory.without_uuids(),
            &ledger_->FindNode("other")->node.inventory.without_uuids());
  kube::PodObject a = Whole("a"), b = Whole("b");
  for (kube::PodObject* pod : {&a, &b}) {
    pod->meta.labels = {{"app", "train"}};
    ledger_->SetPod(
        Assigned(*pod, {{{"main", {{UuidOf("n", pod == &a ? 0 : 1), kWholeGpu, GiB(80)}}}}}));
  }
  EXPECT_EQ(&*Entry(a).request.devices, &*Entry(b).request.devices);
  EXPECT_EQ(&*Entry(a).labels, &*Entry(b).labels);
  EXPECT_EQ(&*Entry(a).charges, &*Entry(b).charges);
  EXPECT_EQ(Entry(a).charges->size(), 1u);
  EXPECT_EQ(Entry(a).labels->at("app"), "train");
  EXPECT_NE(Entry(a).assignment(), Entry(b).assignment());
  EXPECT_LE(sizeof(PodEntry), 312u) << "a cluster has tens of thousands of them";
}

TEST_F(LedgerPodsTest, GpusThatOnlyAnInitContainerUsesAreNotCounted) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject pod = Whole("a");
  kube::Container init = pod.containers[0];
  init.name = "prepare";
  init.kind = kube::ContainerKind::kInit;
  pod.containers.insert(pod.containers.begin(), init);
  ledger_->SetPod(Assigned(pod, {{{"prepare", {{UuidOf("n", 0), kWholeGpu, GiB(80)}}},
                                  {"main", {{UuidOf("n", 1), kWholeGpu, GiB(80)}}}}}));
  EXPECT_EQ(Entry(pod).problem(), "");
  EXPECT_EQ(ledger_->cluster().free_milli(), 1000);
  EXPECT_EQ(Entry(pod).assignment().containers.at("main")[0].uuid, UuidOf("n", 1));
}

TEST_F(LedgerPodsTest, SlicesAreOfferedWhereTheyAndTheirGpuAreHealthy) {
  const auto node = [](bool gpu_is_healthy, bool slice_is_healthy) {
    return Edited(1, [&](std::vector<device::Gpu>& gpus) {
      if (!gpu_is_healthy) gpus[0].health = device::Health::Unhealthy("XID 79");
      device::MigSlice slice{
          .uuid = "MIG-0", .profile = "1g.10gb", .gpu_instance = 1, .memory = GiB(10)};
      if (!slice_is_healthy) slice.health = device::Health::Unhealthy("XID 94");
      gpus[0].mig = {slice};
    });
  };
  const kube::PodObject pod = GpuPod("a", {{"nvidia.com/mig-1g.10gb", "1"}});
  for (const bool gpu : {true, false}) {
    for (const bool slice : {true, false}) {
      ledger_->SetNode(node(gpu, slice));
      EXPECT_EQ(Fits(pod), gpu && slice) << gpu << slice;
    }
  }
}

TEST_F(LedgerPodsTest, AQuotaAllowsANodeIfItAllowsOneOfItsGpus) {
  const auto set = [&](const char* model, int gib) {
    ledger_->SetNode(Edited(2, [&](std::vector<device::Gpu>& gpus) {
      gpus[1].model = model;
      gpus[1].memory = GiB(gib);
    }));
  };
  SetQuota(R"({"ns":{"quota":{"T4":1}}})");
  set("Tesla T4", 80);
  EXPECT_TRUE(Fits(Whole("a")));
  // The rest of the quota is a quarter of the larger GPU, which is half of the smaller GPU.
  ledger_->SetNode(Edited(2, [](std::vector<device::Gpu>& gpus) { gpus[0].memory = GiB(40); }));
  SetQuota(R"({"ns":{"quota":{"A100":1}}})");
  ASSERT_TRUE(Assume(GpuPod("b", {{names::kResourceGpuMem, "60"}})).ok());
  EXPECT_TRUE(Fits(GpuPod("c", {{names::kResourceGpuMem, "20"}})));
  EXPECT_FALSE(Fits(GpuPod("d", {{names::kResourceGpuMem, "21"}})));
}

TEST_F(LedgerPodsTest, AQuotaForTheModelLabelOfANodeCountsAllGpusOfAPod) {
  kube::NodeObject node = GpuNode("n", 4);
  node.meta.labels[std::string(names::kLabelLegacyGpuModel)] = "fast";
  ledger_->SetNode(node);
  SetQuota(R"({"ns":{"quota":{"fast":2}}})");
  ASSERT_TRUE(Assume(GpuPod("a", {{names::kResourceGpu, "2"}})).ok());
  EXPECT_FALSE(Fits(Whole("b")));
}

TEST_F(LedgerPodsTest, ThePodsPolicyOverridesTheClusters) {
  ledger_->SetNode(GpuNode("n", 2));
  const kube::PodObject first = GpuPod("a", {{names::kResourceGpuMem, "10"}});
  ASSERT_TRUE(Assume(first).ok());
  const std::string used = Entry(first).assignment().containers.at("main")[0].uuid;
  for (const char* policy : {"binpack", "spread"}) {
    kube::PodObject pod = GpuPod("b", {{names::kResourceGpuMem, "10"}});
    pod.meta.annotations[std::string(names::kAnnotationPolicy)] = policy;
    const auto assumed = Assume(pod);
    ASSERT_TRUE(assumed.ok()) << assumed.status().ToString();
    EXPECT_EQ(assumed->assignment.containers.at("main")[0].uuid == used,
              policy == std::string_view("binpack"));
    ledger_->DropAssumption(pod.meta.uid);
  }
}

TEST_F(LedgerPodsTest, AReportIgnoresAShortageOfCpuOrMemory) {
  kube::NodeObject without = GpuNode("without", 0);
  ledger_->SetNode(without);
  ledger_->SetNode(GpuNode("n", 1, "80Gi", "4"));
  kube::PodObject pod = Whole("a");
  EXPECT_EQ(ledger_->Report(MakeQuery(pod), "unknown").status().code(), Code::kNotFound);
  EXPECT_EQ(ledger_->Report(MakeQuery(pod), "without").status().code(), Code::kNotFound);
  EXPECT_TRUE(ledger_->Report(MakeQuery(pod), "n")->shortfall.ok());
  for (const auto& [resource, amount] : {std::pair("cpu", "64"), std::pair("memory", "2Ti")}) {
    pod.containers[0].requests = {{resource, amount}};
    const auto report = ledger_->Report(MakeQuery(pod), "n");
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->shortfall.ok()) << report->text;
    EXPECT_TRUE(report->pick.has_value());
  }
  const auto two = ledger_->Report(MakeQuery(GpuPod("b", {{names::kResourceGpu, "2"}})), "n");
  EXPECT_FALSE(two->shortfall.ok());
}

TEST_F(LedgerPodsTest, AResizedPodTakesItsCurrentAmounts) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject pod = Whole("a");
  pod = BoundPod(pod, "n", Assume(pod).value().annotations);
  ledger_->SetPod(pod);
  const int64_t before = CpuFree();
  pod.containers[0].requests["cpu"] = "3";
  ledger_->SetPod(pod);
  EXPECT_EQ(CpuFree(), before - 3000);
}

TEST_F(LedgerPodsTest, ABoundPodThatIsReceivedAgainChangesNothing) {
  ledger_->SetNode(GpuNode("n", 2));
  kube::PodObject pod = Whole("a");
  pod = BoundPod(pod, "n", Assume(pod).value().annotations);
  ledger_->SetPod(pod);
  const uint64_t version = ledger_->cluster().version();
  pod.meta.resource_version = "2";
  ledger_->SetPod(pod);
  EXPECT_EQ(ledger_->cluster().version(), version) << "caches stay valid";
}

TEST_F(LedgerPodsTest, AWaitingPodWithTooManyGpuDemandsHasAProblem) {
  kube::PodObject pod = Whole("a");
  for (size_t i = 1; i <= placement::kMaxGpuDemands; ++i) {
    pod.containers.push_back(pod.containers[0]);
    pod.containers.back().name = fmt::format("c{}", i);
  }
  ledger_->SetPod(pod);
  EXPECT_NE(Entry(pod).problem(), "");
  pod.containers.pop_back();
  pod.meta.uid = Uid("uid-b");
  ledger_->SetPod(pod);
  EXPECT_EQ(Entry(pod).problem(), "");
}

TEST_F(LedgerPodsTest, APodThatIsPutBackHoldsItsGpusAgain) {
  SetQuota(R"({"ns":{"quota":{"A100":2}}})");
  ledger_->SetNode(GpuNode("n", 2));
  device::Assignment assignment;
  assignment.containers["main"] = {{UuidOf("n", 1), kWholeGpu, GiB(80)}};
  const kube::PodObject pod = Assigned(Whole("a"), assignment);
  ledger_->SetPod(pod);
  kube::PodObject waiting = Whole("w");
  waiting.gates = {"g"};
  ledger_->SetPod(waiting);
  PodEntry taken = ledger_->TakeOut(pod.meta.uid);
  PodEntry taken_waiting = ledger_->TakeOut(waiting.meta.uid);
  EXPECT_TRUE(ledger_->pods().empty());
  EXPECT_TRUE(Fits(GpuPod("two", {{names::kResourceGpu, "2"}})));
  ledger_->PutBack(std::move(taken));
  ledger_->PutBack(std::move(taken_waiting));
  EXPECT_EQ(Entry(pod).assignment(), assignment);
  EXPECT_FALSE(Entry(pod).guessed());
  EXPECT_EQ(Entry(waiting).gates(), waiting.gates);
  EXPECT_EQ(ledger_->PodsOn("n"), std::vector<Uid>{pod.meta.uid});
  EXPECT_EQ(ledger_->quota().Used("ns", "A100"), kWholeGpu);
  EXPECT_FALSE(Fits(GpuPod("two", {{names::kResourceGpu, "2"}})));
}

TEST_F(LedgerPodsTest, AGuessIsStillAGuessAfterThePodIsPutBack) {
  ledger_->SetNode(GpuNode("n", 2));
  const kube::PodObject pod = BoundPod(Whole("a"), "n", {});
  ledger_->SetPod(pod);
  ASSERT_TRUE(Entry(pod).guessed());
  ledger_->PutBack(ledger_->TakeOut(pod.meta.uid));
  EXPECT_TRUE(Entry(pod).guessed());
}

TEST_F(LedgerPodsTest, APodHoldsItsGpusAgainWhenItsNodeReturns) {
  ledger_->SetNode(GpuNode("n", 2));
  device::Assignment assignment;
  assignment.containers["main"] = {{UuidOf("n", 1), kWholeGpu, GiB(80)}};
  const kube::PodObject pod = Assigned(Whole("a"), assignment);
  ledger_->SetPod(pod);
  EXPECT_TRUE(Entry(pod).rare->annotations.empty());  // the assignment says the same
  ledger_->RemoveNode("n");
  EXPECT_FALSE(Entry(pod).holds_gpus());
  EXPECT_TRUE(Entry(pod).assignment().containers.empty());
  ledger_->SetNode(GpuNode("n", 2));
  EXPECT_TRUE(Entry(pod).holds_gpus());
  EXPECT_EQ(Entry(pod).assignment(), assignment);
  EXPECT_FALSE(Entry(pod).guessed());
  // Without its annotation the pod only has a guess.
  kube::PodObject bare = pod;
  bare.meta.annotations.clear();
  ledger_->SetPod(bare);
  EXPECT_TRUE(Entry(pod).guessed());
}

TEST_F(LedgerPodsTest, OnlyChangesOfANodeAreReported) {
  kube::NodeObject node = GpuNode("n", 2);
  EXPECT_TRUE(ledger_->SetNode(node));
  node.meta.resource_version = "2";
  EXPECT_FALSE(ledger_->SetNode(node));
  node.unschedulable = true;
  EXPECT_TRUE(ledger_->SetNode(node));
  EXPECT_EQ(ledger_->FindNode(node.meta.uid), ledger_->FindNode("n"));
  // Another node of the same name.
  const Uid former = std::exchange(node.meta.uid, Uid("other"));
  EXPECT_TRUE(ledger_->SetNode(node));
  EXPECT_EQ(ledger_->FindNode(former), nullptr);
  EXPECT_EQ(ledger_->nodes().size(), 1u);
}

TEST_F(LedgerPodsTest, TheFirstNodeThatOffersGpuMemDeterminesItsUnit) {
  ledger_->SetNode(GpuNode("n", 2));
  EXPECT_EQ(ledger_->OfferedMemoryUnit(), device::MemoryUnit::kGiB);
  kube::NodeObject node = GpuNode("n", 2);
  node.allocatable.emplace(names::kResourceGpuMem, "160");
  ledger_->SetNode(node);
  EXPECT_EQ(ledger_->OfferedMemoryUnit(), device::MemoryUnit::kGiB);
  node.allocatable.insert_or_assign(std::string(names::kResourceGpuMem), "163840");
  ledger_->SetNode(node);
  EXPECT_EQ(ledger_->OfferedMemoryUnit(), device::MemoryUnit::kMiB);
}

}  // namespace
}  // namespace tessera::ledger
