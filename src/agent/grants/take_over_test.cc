// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/take_over.h"

#include "src/agent/grants/holdings.h"
#include "src/agent/grants/testing/allocation_fixture.h"
#include "src/agent/grants/testing/grants_fixture.h"
#include "src/base/file.h"
#include "src/base/log.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kAssigned = "ALIYUN_COM_GPU_MEM_ASSIGNED";

// The pod with running containers, as gpushare or gpu-manager left it.
PodInfo Running(PodInfo pod) {
  for (const auto& container : pod.request->containers) {
    pod.container_ids[container.name] = "containerd://1";
  }
  return pod;
}

PodInfo GpusharePod(const std::string& name, int units, int minor) {
  PodInfo pod = Running(FakeApiPods::Make(name, {{"main", {{kMem, std::to_string(units)}}}}));
  pod.annotations = {{"ALIYUN_COM_GPU_MEM_IDX", std::to_string(minor)},
                     {"ALIYUN_COM_GPU_MEM_POD", std::to_string(units)},
                     {"ALIYUN_COM_GPU_MEM_DEV", "16"},
                     {std::string(kAssigned), "true"},
                     {"ALIYUN_COM_GPU_MEM_ASSUME_TIME", "1700000000123456789"}};
  return pod;
}

PodInfo GpuManagerPod(const std::string& name, const std::string& cores, const std::string& blocks,
                      const std::string& minors) {
  PodInfo pod = Running(FakeApiPods::Make(name, {{"main", {{kCore, cores}, {kBlocks, blocks}}}}));
  if (minors.empty()) return pod;
  pod.annotations = {{"tencent.com/predicate-gpu-idx-0", minors},
                     {"tencent.com/predicate-node", "node-1"},
                     {"tencent.com/predicate-time", "1700000000123456789"},
                     {"tencent.com/gpu-assigned", "true"}};
  return pod;
}

class TakeOverTest : public GrantsFixture {
 protected:
  PluginTakeover* MakeTakeover() override {
    take_over_.emplace(checkpoint_minors_, &*ledger_);
    return &*take_over_;
  }
  // Starts the agent on a node with running pods.
  void StartWith(const std::vector<PodInfo>& running) {
    Restart();
    for (const PodInfo& pod : running) {
      kubelet_.Admit(pod.name);
      pods_.Set(pod);
    }
    pods_.Sync();
    runner_.AdvanceTimeAndRun(1s);
  }
  std::string HeldBy(const std::string& pod, const std::string& container = "main") {
    const auto found = ledger_->entries().find({Uid("uid-" + pod), container});
    if (found == ledger_->entries().end()) return "nothing";
    std::string held;
    for (const auto& share : found->second.shares) {
      held += fmt::format("{}{} {}m {}M", held.empty() ? "" : ", ", share.uuid,
                          share.compute.count(), ToMiB(share.memory));
    }
    return held;
  }

  device::AllocatedMinors checkpoint_minors_;
  std::optional<PluginTakeover> take_over_;
};

TEST_F(TakeOverTest, EntersAssignmentsOfRunningPodsIntoTheLedger) {
  StartWith({GpusharePod("a", 10, 2), GpuManagerPod("b", "30", "20", "1"),
             GpuManagerPod("c", "200", "0", "0,3")});
  EXPECT_EQ(HeldBy("a"), "GPU-2 0m 10240M");
  EXPECT_EQ(HeldBy("b"), "GPU-1 300m 5120M");
  EXPECT_EQ(HeldBy("c"), "GPU-0 1000m 16384M, GPU-3 1000m 16384M");
  EXPECT_TRUE(pods_.written.empty()) << "the annotations are correct";
  EXPECT_EQ(use_->accounts.UseOf("GPU-2").memory, GiB(10));
  const Holdings shown = HoldingsOf(*ledger_, &pods_);
  ASSERT_EQ(shown.containers.size(), 3u);
  EXPECT_EQ(shown.containers[1].holder.pod_name, "b");
  EXPECT_EQ(shown.containers[1].container_id, "1") << "its processes are found by this ID";
  // No GPU is granted twice, however it is requested.
  pods_.Set(FakeApiPods::Make("new", {{"main", {{kMem, "12"}}}}));
  EXPECT_FALSE(RequestGrant("new", {Token(kMem, 12)}).ok());
  pods_.Set(FakeApiPods::Make("small", {{"main", {{kMem, "6"}}}}));
  EXPECT_EQ(GpuOf("small", {Token(kMem, 6)}), "GPU-2");
  pods_.Set(FakeApiPods::Make("whole", {{"main", {{kGpu, "1"}}}}));
  EXPECT_FALSE(RequestGrant("whole", {Token(kGpu, 1)}).ok());
}

TEST_F(TakeOverTest, ReadsTheAllocationAnnotationOfGpushareVersion2) {
  PodInfo pod = Running(FakeApiPods::Make("a", {{"none", {}}, {"main", {{kMem, "4"}}}}));
  pod.annotations = {{"scheduler.framework.gpushare.allocation", R"({"1":{"3":4}})"}};
  StartWith({pod});
  EXPECT_EQ(HeldBy("a"), "GPU-3 0m 4096M");
}

TEST_F(TakeOverTest, ContainerThatStartsAgainGetsTheSameGpuWithoutAToken) {
  StartWith({GpusharePod("a", 10, 2)});
  const auto again = RequestGrant("a", {});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->env.at("NVIDIA_VISIBLE_DEVICES"), "GPU-2");
  EXPECT_EQ(again->env.at("ALIYUN_COM_GPU_MEM_CONTAINER"), "10");
  EXPECT_EQ(again->devices.at(0).bytes, GiB(10).count());
  // The same holds after a restart of the agent without the API server.
  pods_.Remove(Uid("uid-a"));
  Restart();
  EXPECT_EQ(GpuOf("a", {}), "GPU-2");
}

TEST_F(TakeOverTest, OnlyATakenOverContainerGetsAGrantWithoutAToken) {
  StartWith({GpusharePod("a", 10, 2)});
  pods_.Set(FakeApiPods::Make("b", {{"main", {{kMem, "4"}}}}));
  EXPECT_EQ(RequestGrant("b", {}).status().code(), Code::kNotFound);
  ASSERT_TRUE(RequestGrant("b", {Token(kMem, 4)}).ok());
  EXPECT_EQ(RequestGrant("b", {}).status().code(), Code::kNotFound) << "not even its own GPUs";
  EXPECT_EQ(RequestGrant("a", {}, "other").status().code(), Code::kNotFound);
}

TEST_F(TakeOverTest, KeepsAnEntryUntilThePodIsGone) {
  StartWith({GpusharePod("a", 10, 2), GpusharePod("b", 12, 0), GpusharePod("c", 12, 1),
             GpusharePod("d", 12, 3)});
  pods_.Set(FakeApiPods::Make("new", {{"main", {{kMem, "8"}}}}));
  kubelet_.Admit("new");
  EXPECT_FALSE(RequestGrant("new", {Token(kMem, 8)}).ok()) << "pod a still exists";
  runner_.AdvanceTimeAndRun(5min);
  EXPECT_EQ(ledger_->entries().size(), 4u);
  Restart();
  EXPECT_EQ(ledger_->entries().size(), 4u);
  pods_.Remove(Uid("uid-a"));
  kubelet_.End("a");
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(HeldBy("a"), "nothing");
  EXPECT_EQ(GpuOf("new", {Token(kMem, 8)}), "GPU-2");
}

TEST_F(TakeOverTest, CheckpointsWinOverAnnotationsAndCorrectThem) {
  checkpoint_minors_ = {{{Uid("uid-a"), "main"}, {3}},
                        {{Uid("uid-b"), "main"}, {1}},
                        {{Uid("uid-gone"), "main"}, {0}}};
  StartWith({GpusharePod("a", 10, 2), GpuManagerPod("b", "30", "20", "")});
  EXPECT_EQ(HeldBy("a"), "GPU-3 0m 10240M") << "swapped with a pod of the same size";
  EXPECT_EQ(HeldBy("b"), "GPU-1 300m 5120M") << "only the checkpoint has its GPU";
  EXPECT_EQ(ledger_->entries().size(), 2u);
  EXPECT_EQ(pods_.written["a"].at("ALIYUN_COM_GPU_MEM_IDX"), "3");
  EXPECT_EQ(pods_.written["b"].at("tencent.com/predicate-gpu-idx-0"), "1");
  EXPECT_EQ(pods_.written["b"].at("tencent.com/gpu-assigned"), "true");
  const auto published =
      device::DecodeAssignment(pods_.written["a"].at(std::string(names::kAnnotationAssignment)));
  ASSERT_TRUE(published.ok());
  EXPECT_EQ(published->containers.at("main").at(0).uuid, "GPU-3");
}

TEST_F(TakeOverTest, IgnoresACheckpointThatContradictsThePod) {
  checkpoint_minors_ = {{{Uid("uid-a"), "main"}, {9}},
                        {{Uid("uid-b"), "main"}, {0, 1}},
                        {{Uid("uid-c"), "main"}, {1}}};
  PodInfo none = Running(FakeApiPods::Make("c", {{"main", {}}}));
  StartWith({GpusharePod("a", 10, 2), GpuManagerPod("b", "30", "20", ""), none});
  EXPECT_EQ(HeldBy("a"), "GPU-2 0m 10240M") << "as its annotations say";
  EXPECT_EQ(HeldBy("b"), "nothing") << "a share is of one GPU";
  EXPECT_EQ(HeldBy("c"), "nothing") << "it requests no GPU";
}

TEST_F(TakeOverTest, CountsAnOversubscribedGpuAndGrantsItNoFurther) {
  StartWith({GpusharePod("a", 10, 2), GpusharePod("b", 10, 2)});
  EXPECT_EQ(ledger_->entries().size(), 1u);
  EXPECT_EQ(use_->accounts.UseOf("GPU-2").memory, GiB(20));
}

TEST_F(TakeOverTest, IgnoresPodsThatDidNotStartOrHaveEnded) {
  PodInfo waiting = GpusharePod("a", 10, 2);
  waiting.container_ids.clear();
  PodInfo ended = GpusharePod("b", 10, 1);
  ended.ended = true;
  PodInfo ours = GpusharePod("c", 10, 0);
  ours.annotations[std::string(names::kAnnotationAssignment)] =
      R"({"version":1,"containers":{"main":[{"gpu":"GPU-0","milli":0,"bytes":10737418240}]}})";
  StartWith({waiting, ended, ours});
  EXPECT_TRUE(ledger_->entries().empty());
  EXPECT_EQ(GpuOf("a", {Token(kMem, 10)}), "GPU-2") << "by a token, as its scheduler chose";
}

TEST_F(TakeOverTest, WaitsForTheDriver) {
  devices_.Set(std::make_shared<DeviceSet>(std::make_shared<device::NodeInventory>()));
  StartWith({GpusharePod("a", 10, 2)});
  EXPECT_EQ(HeldBy("a"), "nothing");
  devices_.Set(FourGpus());
  service_->OnInventoryChanged();
  EXPECT_EQ(HeldBy("a"), "GPU-2 0m 10240M");
}

TEST_F(TakeOverTest, ForgedAnnotationGivesNoMoreThanThePodRequests) {
  PodInfo pod = GpusharePod("a", 1, 2);
  pod.annotations["ALIYUN_COM_GPU_MEM_POD"] = "16";
  StartWith({pod});
  EXPECT_EQ(HeldBy("a"), "GPU-2 0m 1024M");
}

class CheckpointFilesTest : public ::testing::Test {
 protected:
  CheckpointFilesTest() {
    MustWrite("kubelet", R"({"PodDeviceEntries":[]})");
    MustWrite("manager", R"({"PodGPUMapping":{"u":{"main":{"Devices":["/dev/nvidia1"]}}}})");
  }
  std::string Path(const std::string& name) const { return JoinPath(dir_.path(), name); }
  void MustWrite(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(Path(name), text, 0600).ok());
  }
  device::AllocatedMinors Read(const std::string& kubelet, const std::string& manager) {
    logged_.clear();
    const ScopedLogSinkForTest sink([this](std::string_view line) { logged_.append(line); });
    return ReadCheckpoints(kubelet, manager);
  }

  TempDir dir_;
  std::string logged_;
};

TEST_F(CheckpointFilesTest, MissingFilesAreNoError) {
  EXPECT_TRUE(Read(Path("x"), "").empty());
  EXPECT_TRUE(Read("", Path("no/such")).empty());
  EXPECT_EQ(logged_, "");
  EXPECT_EQ(Read(Path("kubelet"), Path("manager")).size(), 1u);
  EXPECT_EQ(logged_, "");
}

TEST_F(CheckpointFilesTest, LogsAnInvalidFileWithItsPlaceAndReadsTheOther) {
  MustWrite("kubelet", R"({"Data":{"PodDeviceEntries":[{"PodUID":"u",)");
  EXPECT_EQ(Read(Path("kubelet"), Path("manager")).size(), 1u);
  EXPECT_NE(logged_.find(Path("kubelet")), std::string::npos) << logged_;
  EXPECT_NE(logged_.find("at byte 43, line 1"), std::string::npos) << logged_;
  MustWrite("kubelet", R"({"PodDeviceEntries":[0]})");
  EXPECT_EQ(Read(Path("kubelet"), Path("manager")).size(), 1u);
  EXPECT_NE(logged_.find("PodDeviceEntries[0]: must be an object"), std::string::npos) << logged_;
  EXPECT_EQ(Read(dir_.path(), Path("manager")).size(), 1u) << "a directory";
  EXPECT_NE(logged_.find(dir_.path()), std::string::npos) << logged_;
}

TEST_F(CheckpointFilesTest, RejectsALargeFile) {
  MustWrite("kubelet", std::string(device::kMaxCheckpointBytes + 1, ' '));
  EXPECT_EQ(Read(Path("kubelet"), Path("manager")).size(), 1u);
  EXPECT_NE(logged_.find(Path("kubelet")), std::string::npos) << logged_;
}

// Tests the takeover with --binding=allocate.
class TakeOverAtAllocateTest : public AllocationFixture {
 protected:
  TakeOverAtAllocateTest() {
    RestartAll();
    pods_.Sync();
  }
  PluginTakeover* MakeTakeover() override {
    take_over_.emplace(device::AllocatedMinors(), &*ledger_);
    return &*take_over_;
  }

  std::optional<PluginTakeover> take_over_;
};

TEST_F(TakeOverAtAllocateTest, SharesOfAnEarlierPluginStartAgain) {
  PodInfo pod = FakeApiPods::Make("old", {{"main", {{kMem, "8"}}}});
  pod.container_ids["main"] = "containerd://1";
  pod.annotations = {{"ALIYUN_COM_GPU_MEM_IDX", "2"},
                     {"ALIYUN_COM_GPU_MEM_POD", "8"},
                     {"ALIYUN_COM_GPU_MEM_DEV", "16"},
                     {"ALIYUN_COM_GPU_MEM_ASSIGNED", "true"}};
  pods_.Set(pod);
  ASSERT_EQ(ledger_->entries().size(), 1u) << "taken over";
  kubelet_.Admit("old");
  Hold("old", kMem, {"GPU-2-_-1", "GPU-2-_-2"});
  EXPECT_TRUE(PreStart(kMem, {"GPU-2-_-1", "GPU-2-_-2"}).ok());
  AssignMem("new", 8, "GPU-1");
  const Ids ids = NewIds(8);
  EXPECT_EQ(AdmitMem("new", ids), "GPU-1");
  EXPECT_TRUE(PreStart(kMem, ids).ok());
}

}  // namespace
}  // namespace tessera::agent
