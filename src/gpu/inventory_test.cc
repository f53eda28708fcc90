// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "src/base/file.h"
#include "src/gpu/testing/inventory_fixture.h"

namespace tessera::gpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::FakeDriver;
using testing::FakeNvml;
using ::testing::HasSubstr;
using testing::InventoryFixture;
using ::testing::IsEmpty;

const Status kLost(Code::kDataLoss, "GPU is lost");

TEST(InventoryTest, TheFirstSnapshotIsComplete) {
  InventoryFixture f(FakeDriver::WithGpus(8));
  f.Start();
  ASSERT_EQ(f.snapshots.size(), 1u);
  EXPECT_EQ(f.node().driver_version, "550.163.01");
  EXPECT_EQ(f.node().cuda_version, 12040);
  EXPECT_EQ(f.node().healthy_count(), 8u);
  EXPECT_THAT(f.node().notes, IsEmpty());
  const device::Gpu& gpu = f.node().gpus[3];
  EXPECT_EQ(gpu.uuid, f.UuidOf(3));
  EXPECT_EQ(gpu.index, 3);
  EXPECT_EQ(gpu.minor, 3);
  EXPECT_EQ(gpu.memory, GiB(80));
  EXPECT_EQ(device::NameOf(f.node().links.At(2, 3)), "NV4+PIX");
  EXPECT_EQ(device::NameOf(f.node().links.At(1, 2)), "SYS");
}

TEST(InventoryTest, MakesFewCallsAndNoSnapshotsWhenNothingChanges) {
  InventoryFixture f(FakeDriver::WithGpus(8));
  f.Start();
  f.Advance(seconds(5));
  f.driver().calls.clear();
  f.Advance(seconds(60));
  EXPECT_EQ(f.snapshots.size(), 1u);
  int calls = 0;
  for (const auto& [call, count] : f.driver().calls) calls += count;
  // Six polls of three calls for each of 8 GPUs and a count, and 12 waits.
  EXPECT_LE(calls, 6 * (8 * 3 + 1) + 12);
  EXPECT_LE(f.driver().calls[NvmlCall::kEventSetWait], 12)
      << "the listener pauses after a wait that does not block";
}

TEST(InventoryTest, ReportsAMissingDriverAndFindsADriverThatIsInstalledLater) {
  InventoryFixture f(nullptr);
  f.Start();
  ASSERT_EQ(f.snapshots.size(), 1u);
  EXPECT_THAT(f.node().gpus, IsEmpty());
  EXPECT_EQ(f.node().problem, "libnvidia-ml.so.1 is missing");
  f.Advance(seconds(100));
  EXPECT_EQ(f.snapshots.size(), 1u);
  f.loader->driver = FakeDriver::WithGpus(2);
  f.Advance(milliseconds(2100));
  ASSERT_EQ(f.snapshots.size(), 2u);
  EXPECT_EQ(f.node().healthy_count(), 2u);
  EXPECT_EQ(f.node().problem, "");
}

TEST(InventoryTest, GpusThatAppearOnAnEmptyNodeAreFound) {
  InventoryFixture f(FakeDriver::WithGpus(0));
  f.Start();
  ASSERT_EQ(f.snapshots.size(), 1u);
  EXPECT_EQ(f.node().problem, "the driver reports no GPU");
  f.driver().gpus = FakeDriver::WithGpus(2)->gpus;
  f.inventory->PollNow();
  f.runner.RunUntilIdle();
  EXPECT_EQ(f.node().healthy_count(), 2u);
  EXPECT_EQ(f.node().problem, "");
}

TEST(InventoryTest, AllGpusMayDisappearAndReturn) {
  InventoryFixture f(FakeDriver::WithGpus(2));
  f.Start();
  f.driver().gpus.clear();
  f.Advance(seconds(20));
  EXPECT_EQ(f.node().healthy_count(), 0u);
  f.driver().gpus = FakeDriver::WithGpus(2)->gpus;
  f.Advance(seconds(11));
  EXPECT_EQ(f.node().healthy_count(), 2u);
}

TEST(InventoryTest, AnInitThatHangsIsReportedAndRecoveredFrom) {
  InventoryFixture f(FakeDriver::WithGpus(2));
  f.driver().faults[{NvmlCall::kInit, -1}] = {};
  f.Start();
  EXPECT_THAT(f.snapshots, IsEmpty());
  f.Advance(seconds(61));
  ASSERT_EQ(f.snapshots.size(), 1u);
  EXPECT_EQ(f.node().problem, "NVML call nvmlInit_v2 did not return");
  EXPECT_EQ(f.inventory->stats().hung_calls.at(NvmlCall::kInit), 1u);
  EXPECT_EQ(f.inventory->stats().calls_stuck, 1);
  f.driver().faults.clear();
  f.caller.Release();
  f.runner.RunUntilIdle();
  EXPECT_EQ(f.node().healthy_count(), 2u);
  EXPECT_EQ(f.inventory->stats().calls_stuck, 0);
}

TEST(InventoryTest, AnInitThatNeverReturnsIsAttemptedThreeTimes) {
  InventoryFixture f(FakeDriver::WithGpus(2));
  f.driver().faults[{NvmlCall::kInit, -1}] = {};
  f.Start();
  f.Advance(std::chrono::hours(2));
  EXPECT_EQ(f.caller.stuck(), 3u);
  EXPECT_EQ(f.node().problem, "NVML call nvmlInit_v2 did not return");
}

TEST(InventoryTest, AnXidThatNeedsARepairMakesOneGpuUnhealthyUntilRepaired) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  f.driver().events.push_back({FakeNvml::HandleOf(2), 79});
  f.Advance(seconds(5));
  EXPECT_EQ(f.ReasonOf(2), "XID 79: GPU has fallen off the bus; to do: reboot the node");
  EXPECT_EQ(f.node().healthy_count(), 3u);
  f.Advance(std::chrono::hours(1));
  EXPECT_EQ(f.node().healthy_count(), 3u) << "time repairs nothing";
  f.driver().recovery = RecoveryAction::kResetGpu;
  f.Advance(seconds(11));
  f.driver().recovery = RecoveryAction::kNone;
  f.Advance(seconds(8));
  EXPECT_EQ(f.node().healthy_count(), 4u);
  EXPECT_EQ(f.inventory->stats().xids.at({f.UuidOf(2), 79}), 1u);
}

TEST(InventoryTest, ARestartOfTheAgentDoesNotMakeAGpuHealthy) {
  const TempDir dir;
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.options.xid_file = dir.path() + "/xids";
  f.driver().faults[{NvmlCall::kRecoveryAction, -1}] = {Status(Code::kUnimplemented, "not known")};
  f.Start();
  f.driver().events.push_back({FakeNvml::HandleOf(2), 48});
  f.Advance(seconds(5));
  ASSERT_EQ(f.node().healthy_count(), 3u);
  f.inventory.reset();
  f.Start();
  EXPECT_EQ(f.ReasonOf(2), "XID 48: Double-bit ECC error; to do: reset the GPU");
  f.Advance(std::chrono::hours(1));
  EXPECT_EQ(f.node().healthy_count(), 3u);
  // A driver that supports recovery actions and requests none has reset the GPU meanwhile.
  f.inventory.reset();
  f.driver().faults.clear();
  f.Start();
  f.Advance(seconds(30));
  EXPECT_EQ(f.node().healthy_count(), 4u);
  f.inventory.reset();
  f.Start();
  EXPECT_EQ(f.node().healthy_count(), 4u);
}

TEST(InventoryTest, AClosedGateEndsTheSessionUntilItOpens) {
  InventoryFixture f(FakeDriver::WithGpus(2));
  f.Start();
  f.driver().events.push_back({FakeNvml::HandleOf(1), 48});
  f.Advance(seconds(5));
  ASSERT_EQ(f.node().healthy_count(), 1u);
  f.gate->SetClosed(true);
  f.inventory->PollNow();
  f.Advance(seconds(10));
  EXPECT_EQ(f.node().problem, "closed for maintenance");
  EXPECT_EQ(f.node().healthy_count(), 0u);
  EXPECT_FALSE(f.driver().initialized) << "the modules could not be unloaded";
  const int inits = f.driver().calls[NvmlCall::kInit];
  f.Advance(std::chrono::hours(1));
  EXPECT_EQ(f.driver().calls[NvmlCall::kInit], inits);
  f.gate->SetClosed(false);
  f.Advance(seconds(3));
  EXPECT_EQ(f.node().healthy_count(), 1u);
  f.Advance(seconds(10));
  EXPECT_EQ(f.node().healthy_count(), 2u) << "the gate was closed for a reset of the GPU";
}

TEST(InventoryTest, AGpuJoinsItsCliqueOnceTheFabricManagerHasRegisteredIt) {
  InventoryFixture f(FakeDriver::WithGpus(2));
  f.driver().gpus[1].fabric.emplace();
  f.Start();
  EXPECT_EQ(f.node().gpus[1].fabric, std::nullopt);
  const device::FabricClique clique{"7b968a6d-c8aa-45e1-9e07-e1e51be99c31", 3};
  f.driver().gpus[1].fabric = std::optional(clique);
  f.Advance(seconds(11));
  EXPECT_EQ(f.node().gpus[1].fabric, clique);
  EXPECT_EQ(f.node().gpus[0].fabric, std::nullopt);
  EXPECT_TRUE(f.inventory->stats().nvml_errors.empty());
}

TEST(InventoryTest, AGpuIsWithdrawnDuringMigMode) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.driver().gpus[1].mig = true;
  f.Start();
  EXPECT_EQ(f.node().healthy_count(), 3u);
  EXPECT_NE(f.ReasonOf(1).find("MIG mode is on"), std::string::npos);
  EXPECT_TRUE(f.node().gpus[1].mig.has_value());
  f.driver().gpus[1].mig = false;
  f.driver().gpus[3].mig = true;
  f.Advance(seconds(11));
  EXPECT_EQ(f.ReasonOf(1), "");
  EXPECT_NE(f.ReasonOf(3), "");
}

TEST(InventoryTest, AnApplicationsXidIsCountedAndTheGpuStaysHealthy) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  f.driver().events = {{FakeNvml::HandleOf(2), 31}, {FakeNvml::HandleOf(2), 31}};
  f.Advance(seconds(6));
  EXPECT_EQ(f.node().healthy_count(), 4u);
  EXPECT_EQ(f.ReasonOf(2), "XID 31: GPU memory page fault");
  EXPECT_EQ(f.inventory->stats().xids.at({f.UuidOf(2), 31}), 2u);
  f.Advance(seconds(75));
  EXPECT_EQ(f.ReasonOf(2), "");
}

TEST(InventoryTest, ARequestedResetMakesTheGpuUnhealthy) {
  InventoryFixture f(FakeDriver::WithGpus(2));
  f.Start();
  f.driver().recovery = RecoveryAction::kResetGpu;
  f.Advance(seconds(11));
  EXPECT_EQ(f.ReasonOf(0), "the driver requests a reset of the GPU");
  f.driver().recovery = RecoveryAction::kNone;
  f.Advance(seconds(3));
  EXPECT_EQ(f.node().healthy_count(), 2u);
}

TEST(InventoryTest, ALostGpuDoesNotAffectOthersAndRecovers) {
  InventoryFixture f(FakeDriver::WithGpus(8));
  f.Start();
  for (const NvmlCall call : {NvmlCall::kHandleByIndex, NvmlCall::kMemoryInfo, NvmlCall::kUuid}) {
    f.driver().faults[{call, 5}] = {kLost};
  }
  f.Advance(seconds(11));
  EXPECT_EQ(f.node().healthy_count(), 7u);
  EXPECT_EQ(f.ReasonOf(5), "GPU is lost");
  f.Advance(seconds(300));
  EXPECT_EQ(f.node().healthy_count(), 7u);
  f.driver().faults.clear();
  f.Advance(seconds(3));
  EXPECT_EQ(f.node().healthy_count(), 8u);
}

TEST(InventoryTest, AGpuThatHangsIsUnhealthyAndComesBackWhenItAnswers) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  f.driver().faults[{NvmlCall::kMemoryInfo, 1}] = {};
  f.Advance(seconds(16));
  EXPECT_EQ(f.node().healthy_count(), 3u);
  EXPECT_EQ(f.ReasonOf(1), "NVML call nvmlDeviceGetMemoryInfo did not return");
  f.Advance(std::chrono::hours(1));
  EXPECT_EQ(f.caller.stuck(), 3u) << "at most three threads hang in the driver";
  EXPECT_EQ(f.node().healthy_count(), 3u);
  f.driver().faults.clear();
  f.caller.Release();
  f.Advance(seconds(1));
  EXPECT_EQ(f.node().healthy_count(), 4u);
}

TEST(InventoryTest, TheFirstSnapshotDoesNotWaitForAGpuThatHangs) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.driver().faults[{NvmlCall::kHandleByIndex, 2}] = {};
  f.Start();
  EXPECT_THAT(f.snapshots, IsEmpty());
  f.Advance(seconds(1));
  ASSERT_EQ(f.snapshots.size(), 1u);
  EXPECT_EQ(f.node().healthy_count(), 3u);
  EXPECT_EQ(f.node().unidentified, 1);
  EXPECT_EQ(device::NameOf(f.node().links.At(0, 1)), "NV4+PIX");
  f.Advance(seconds(5));
  EXPECT_THAT(f.node().notes,
              ElementsAre("cannot identify GPU 2: NVML call nvmlDeviceGetHandleByIndex_v2 "
                          "did not return"));
}

TEST(InventoryTest, TheKernelModuleIdentifiesASilentGpu) {
  const auto root = std::filesystem::temp_directory_path() /
                    fmt::format("tessera-proc-{}", static_cast<int>(::getpid()));
  for (int i = 0; i < 2; ++i) {
    const auto dir = root / fmt::format("driver/nvidia/gpus/0000:{:02x}:00.0", i + 1);
    std::filesystem::create_directories(dir);
    std::ofstream(dir / "information")
        << "Model: NVIDIA Fake\nGPU UUID: " << InventoryFixture::UuidOf(i)
        << "\nDevice Minor: " << i << "\nBus Location: 0000:0" << i + 1 << ":00.0\n";
  }
  InventoryFixture f(FakeDriver::WithGpus(2));
  f.options.proc_root = root.string();
  f.driver().faults[{NvmlCall::kHandleByIndex, 1}] = {kLost};
  f.Start();
  std::filesystem::remove_all(root);
  EXPECT_EQ(f.node().healthy_count(), 1u);
  EXPECT_EQ(f.ReasonOf(1), "GPU is lost");
  EXPECT_EQ(f.node().gpus[1].minor, 1);
  EXPECT_EQ(f.node().unidentified, 0);
}

TEST(InventoryTest, AGpuThatTheDriverStopsCountingIsMissingAndComesBack) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  const testing::FakeGpu gone = f.driver().gpus[1];
  f.driver().gpus.erase(f.driver().gpus.begin() + 1);
  f.Advance(seconds(11));
  EXPECT_EQ(f.node().healthy_count(), 3u);
  EXPECT_EQ(f.ReasonOf(1), "the driver no longer reports this GPU");
  EXPECT_EQ(f.node().Find(f.UuidOf(2))->index, 1) << "the GPUs after the removed GPU move up";
  f.driver().gpus.insert(f.driver().gpus.begin() + 1, gone);
  f.Advance(seconds(11));
  EXPECT_EQ(f.node().healthy_count(), 4u);
  EXPECT_EQ(f.node().gpus[1].uuid, f.UuidOf(1));
}

TEST(InventoryTest, AGpuThatIsAddedIsFound) {
  InventoryFixture f(FakeDriver::WithGpus(3));
  f.Start();
  f.driver().gpus = FakeDriver::WithGpus(4)->gpus;
  f.Advance(seconds(11));
  EXPECT_EQ(f.node().healthy_count(), 4u);
}

TEST(InventoryTest, ReloadsAReplacedDriverAndForgetsItsOldGpus) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  f.driver().events.push_back({FakeNvml::HandleOf(0), 79});
  f.Advance(seconds(5));
  EXPECT_EQ(f.node().healthy_count(), 3u);
  f.loader->driver = FakeDriver::WithGpus(2);
  f.loader->fingerprint = "second";
  f.Advance(seconds(10));
  EXPECT_EQ(f.node().gpus.size(), 2u);
  EXPECT_EQ(f.node().healthy_count(), 2u) << "a reloaded driver has reset its GPUs";
  EXPECT_EQ(f.inventory->stats().driver_loads, 2u);
}

TEST(InventoryTest, ADriverWhoseFilesAreGoneOffersNothingUntilItIsBack) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  const auto driver = f.loader->driver;
  f.loader->driver = nullptr;
  f.Advance(seconds(15));
  EXPECT_EQ(f.node().healthy_count(), 0u);
  EXPECT_NE(f.node().problem, "");
  f.loader->driver = driver;
  f.Advance(seconds(15));
  EXPECT_EQ(f.node().healthy_count(), 4u);
  EXPECT_EQ(f.node().problem, "");
}

TEST(InventoryTest, FailedSessionIsReopened) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  f.driver().initialized = false;
  f.Advance(seconds(12));
  EXPECT_EQ(f.node().healthy_count(), 4u);
  EXPECT_EQ(f.inventory->stats().driver_loads, 2u);
}

TEST(InventoryTest, ADriverThatIsUnloadedLeavesItsGpusUnhealthyUntilItIsBack) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  f.driver().initialized = false;
  f.driver().faults[{NvmlCall::kInit, -1}] = {
      Status(Code::kFailedPrecondition, "nvmlInit_v2: the NVIDIA driver is not loaded")};
  f.Advance(seconds(30));
  EXPECT_EQ(f.node().gpus.size(), 4u);
  EXPECT_EQ(f.node().healthy_count(), 0u);
  EXPECT_EQ(f.node().problem, "nvmlInit_v2: the NVIDIA driver is not loaded");
  f.driver().faults.clear();
  f.Advance(seconds(3));
  EXPECT_EQ(f.node().healthy_count(), 4u);
}

TEST(InventoryTest, PairsOnNvSwitchHaveTheSmallerNumberOfLinks) {
  auto driver = FakeDriver::WithGpus(3);
  driver->gpus[0].nvlinks.assign(18, "switch");
  driver->gpus[1].nvlinks.assign(16, "switch");
  driver->gpus[2].nvlinks.clear();
  InventoryFixture f(driver);
  f.Start();
  EXPECT_EQ(device::NameOf(f.node().links.At(0, 1)), "NVS16+PIX");
  EXPECT_EQ(device::NameOf(f.node().links.At(0, 2)), "SYS");
}

TEST(InventoryTest, LinksAreReadOnce) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.Start();
  const int calls = f.driver().calls[NvmlCall::kNvLinkState];
  f.Advance(std::chrono::hours(1));
  EXPECT_EQ(f.driver().calls[NvmlCall::kNvLinkState], calls);
}

TEST(InventoryTest, WhileTheEventWaitHangsOnlyEventsAreMissed) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.driver().faults[{NvmlCall::kEventSetWait, -1}] = {};
  f.Start();
  f.Advance(seconds(60));
  EXPECT_EQ(f.node().healthy_count(), 4u);
  ASSERT_EQ(f.node().notes.size(), 1u);
  EXPECT_THAT(f.node().notes[0], HasSubstr("nvmlEventSetWait_v2 did not return"));
  f.driver().faults.clear();
  f.caller.Release();
  f.driver().events.push_back({FakeNvml::HandleOf(1), 79});
  f.Advance(seconds(10));
  EXPECT_EQ(f.node().healthy_count(), 3u);
  EXPECT_THAT(f.node().notes, IsEmpty());
}

TEST(InventoryTest, WithAllChecksOffAGpuStaysHealthy) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.options.xids = XidPolicy::Parse("all", "");
  f.Start();
  f.driver().faults[{NvmlCall::kMemoryInfo, 1}] = {kLost};
  f.driver().events.push_back({FakeNvml::HandleOf(2), 79});
  f.Advance(seconds(60));
  EXPECT_EQ(f.node().healthy_count(), 4u);
  EXPECT_EQ(f.driver().calls.count(NvmlCall::kEventSetWait), 0u);
}

TEST(InventoryTest, MayBeDestroyedWhileQueriesRun) {
  InventoryFixture f(FakeDriver::WithGpus(4));
  f.driver().faults[{NvmlCall::kUuid, 1}] = {};
  f.Start();
  f.inventory.reset();
  f.caller.Release();
  f.Advance(seconds(60));
  EXPECT_LE(f.snapshots.size(), 1u);
}

}  // namespace
}  // namespace tessera::gpu
