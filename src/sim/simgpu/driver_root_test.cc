// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/driver_root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "src/base/file.h"
#include "src/sim/simgpu/inject.h"
#include "src/sim/simgpu/show.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::sim {
namespace {

using ::testing::HasSubstr;

TEST(DriverRootTest, HasTheLayoutOfARealDriver) {
  testing::SimNode node({.profile = "h100-sxm5-80gb", .gpus = 2});
  const std::string libraries = node.library("");
  for (const char* name : {"libcuda.so.550.163.01", "libcuda.so.1", "libcuda.so",
                           "libnvidia-ml.so.550.163.01", "libnvidia-ml.so.1"}) {
    EXPECT_TRUE(PathExists(libraries + name)) << name;
  }
  const std::string root = node.driver_root();
  EXPECT_THAT(*ReadFile(root + "/proc/driver/nvidia/version"),
              HasSubstr("Kernel Module  550.163.01  "));
  EXPECT_THAT(*ReadFile(root + "/proc/driver/nvidia/gpus/0000:43:00.0/information"),
              HasSubstr(node.state().facts(1).uuid));
  EXPECT_EQ(*ReadFile(root + "/sys/bus/pci/devices/0000:43:00.0/numa_node"), "1\n");
  EXPECT_EQ(*ReadFile(root + "/sys/bus/pci/devices/0000:43:00.0/class"), "0x030200\n");
  EXPECT_TRUE(PathExists(node.dev_root() + "/dev/nvidia-uvm"));
}

TEST(DriverRootTest, LibrariesOfAnotherDriverVersionAreRemoved) {
  testing::SimNode node({.profile = "t4", .gpus = 2});
  const std::string old = node.library("libcuda.so.535.309.01");
  ASSERT_TRUE(WriteFileAtomically(old, "", 0755).ok());
  DriverRootOptions options;
  options.profile = *LoadProfile("t4");
  options.root = node.driver_root();
  options.library_dir = node.library("");
  ASSERT_TRUE(CreateDriverRoot(options).ok());
  EXPECT_FALSE(PathExists(old));
  EXPECT_TRUE(PathExists(node.library("libcuda.so.550.163.01")));
}

TEST(DriverRootTest, NvidiaSmiShowsMemoryAndClocksOfAnOldDriver) {
  testing::SimNode node({.profile = "base: t4\ndriver: {version: 470.256.02}\n", .gpus = 1});
  const std::string command = fmt::format(
      "SIMGPU_DEV_ROOT={} LD_LIBRARY_PATH={} {}/usr/bin/nvidia-smi --format=csv,noheader "
      "--query-gpu=driver_version,memory.total,clocks_event_reasons.gpu_idle",
      node.dev_root(), node.library(""), node.driver_root());
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char text[200] = {};
  EXPECT_GT(fread(text, 1, sizeof(text) - 1, pipe), 0u);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_STREQ(text, "470.256.02, 15360 MiB, Active\n");
}

TEST(DriverRootTest, DoesNotChangeForeignFolders) {
  TempDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/letter", "dear", 0600).ok());
  DriverRootOptions options;
  options.profile = *LoadProfile("t4");
  options.root = dir.path();
  EXPECT_EQ(CreateDriverRoot(options).code(), Code::kAlreadyExists);
  EXPECT_EQ(DestroyDriverRoot(dir.path(), dir.path()).code(), Code::kNotFound);
  EXPECT_TRUE(PathExists(dir.path() + "/letter"));
}

TEST(DriverRootTest, DestroyRemovesTheNodeAndItsDeviceFiles) {
  testing::SimNode node({.profile = "t4", .gpus = 2});
  ASSERT_TRUE(DestroyDriverRoot(node.driver_root(), node.dev_root()).ok());
  EXPECT_FALSE(PathExists(node.driver_root()));
  EXPECT_TRUE(ListDir(node.dev_root() + "/dev")->empty());
}

// Device files of a node that is created, changed and removed from different folders.
class DeviceFilesTest : public ::testing::Test {
 protected:
  DeviceFilesTest() {
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(dir_.path());
  }
  ~DeviceFilesTest() override { std::filesystem::current_path(before_); }

  Status Create(uint32_t gpus, const std::string& dev_root) {
    DriverRootOptions options;
    options.profile = *LoadProfile("t4");
    options.profile.gpus = gpus;
    options.library_dir = node_.library("");
    options.root = "driver";
    options.device_files = DeviceFiles::kPlain;
    options.dev_root = dev_root;
    return CreateDriverRoot(options);
  }
  size_t FilesIn(const std::string& dev_root) const {
    return ListDir(dir_.path() + "/" + dev_root + "/dev").value_or({}).size();
  }

  TempDir dir_;
  testing::SimNode node_{{.profile = "t4", .gpus = 1}};
  std::filesystem::path before_;
};

TEST_F(DeviceFilesTest, DestroyFindsFilesFromAnotherFolderAndWithoutDevRoot) {
  ASSERT_TRUE(Create(4, "here").ok());
  EXPECT_EQ(FilesIn("here"), 8u);
  std::filesystem::current_path(before_);
  ASSERT_TRUE(DestroyDriverRoot(dir_.path() + "/driver", "").ok());
  EXPECT_EQ(FilesIn("here"), 0u);
}

TEST_F(DeviceFilesTest, DestroyWithAnotherDevRootStillRemovesTheFiles) {
  ASSERT_TRUE(Create(4, "here").ok());
  ASSERT_TRUE(DestroyDriverRoot("driver", dir_.path() + "/elsewhere").ok());
  EXPECT_EQ(FilesIn("here"), 0u);
}

TEST_F(DeviceFilesTest, ASmallerNodeRemovesFilesOfALargerNode) {
  ASSERT_TRUE(Create(8, "here").ok());
  ASSERT_TRUE(Create(2, "here").ok());
  EXPECT_EQ(FilesIn("here"), 6u);
  ASSERT_TRUE(Create(2, "there").ok());
  EXPECT_EQ(FilesIn("here"), 0u);
  EXPECT_EQ(FilesIn("there"), 6u);
  ASSERT_TRUE(DestroyDriverRoot("driver", "").ok());
  EXPECT_EQ(FilesIn("there"), 0u);
}

TEST_F(DeviceFilesTest, FilesThatExistedBeforeStay) {
  ASSERT_TRUE(MakeDirs("here/dev").ok());
  ASSERT_TRUE(WriteFileAtomically("here/dev/nvidia0", "", 0600).ok());
  ASSERT_TRUE(Create(2, "here").ok());
  ASSERT_TRUE(DestroyDriverRoot("driver", "").ok());
  EXPECT_EQ(*ListDir("here/dev"), std::vector<std::string>{"nvidia0"});
}

TEST_F(DeviceFilesTest, AFileOfAnotherKindIsRefusedAndNamed) {
  ASSERT_TRUE(MakeDirs("here/dev").ok());
  ASSERT_TRUE(WriteFileAtomically("here/dev/nvidia1", "precious", 0600).ok());
  const Status status = Create(2, "here");
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("here/dev/nvidia1"));
}

TEST(DriverRootTest, NamesAMissingLibrary) {
  TempDir dir;
  DriverRootOptions options;
  options.profile = *LoadProfile("t4");
  options.root = dir.path() + "/driver";
  options.library_dir = dir.path();
  const Status status = CreateDriverRoot(options);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("libcuda.so.1"));
}

TEST(InjectTest, ALostGpuComesBackAfterRecover) {
  testing::SimNode node({.profile = "t4", .gpus = 2});
  State& state = node.state();
  uint64_t last = state.event_count();
  InjectLost(&state, 1);
  EventView event;
  ASSERT_TRUE(state.WaitEvent(&last, 0, &event));
  EXPECT_EQ(event.data, 79u);
  EXPECT_EQ(event.gpu, 1u);
  EXPECT_TRUE(state.is_lost(1));
  EXPECT_EQ(state.gpu_state(1).recovery_action.load(), 1u);
  EXPECT_THAT(ShowText(&state), HasSubstr("LOST"));
  Recover(&state, 1);
  EXPECT_FALSE(state.is_lost(1));
  EXPECT_EQ(state.gpu_state(1).recovery_action.load(), 0u);
}

TEST(InjectTest, RecoverClearsOnlyTheFaultsOfItsGpu) {
  testing::SimNode node({.profile = "t4", .gpus = 2});
  State& state = node.state();
  ASSERT_EQ(state.AddFault("nvmlDeviceGetName", 0, 999, false, 0, 0), 0);
  ASSERT_EQ(state.AddFault("nvmlDeviceGetName", 1, 999, false, 0, 0), 0);
  Recover(&state, 1);
  EXPECT_EQ(state.CheckFault("nvmlDeviceGetName", 0), 999u);
  EXPECT_EQ(state.CheckFault("nvmlDeviceGetName", 1), 0u);
}

TEST(InjectTest, AnUncorrectedErrorWaitsForTheRepairThatTheGpuSupports) {
  testing::SimNode a100({.profile = "a100-sxm4-80gb", .gpus = 1});
  InjectEcc(&a100.state(), 0, 0, 1);
  EXPECT_EQ(a100.state().gpu_state(0).remapped_pending.load(), 1u);
  EXPECT_EQ(a100.state().gpu_state(0).retired_pending.load(), 0u);
  Recover(&a100.state(), 0);
  EXPECT_EQ(a100.state().gpu_state(0).remapped_uncorrected.load(), 1u);
  EXPECT_EQ(a100.state().gpu_state(0).remapped_pending.load(), 0u);
  testing::SimNode t4({.profile = "t4", .gpus = 1});
  InjectEcc(&t4.state(), 0, 0, 1);
  EXPECT_EQ(t4.state().gpu_state(0).remapped_pending.load(), 0u);
  Recover(&t4.state(), 0);
  EXPECT_EQ(t4.state().gpu_state(0).retired_uncorrected.load(), 1u);
}

TEST(InjectTest, RepairsCountAndReportTheirXids) {
  testing::SimNode node({.profile = "h100-sxm5-80gb", .gpus = 2});
  State& state = node.state();
  uint64_t last = state.event_count();
  InjectRepairs(&state, 1, {.correctable = 2, .uncorrectable = 3, .failed = true});
  EXPECT_EQ(state.gpu_state(1).remapped_corrected.load(), 2u);
  EXPECT_EQ(state.gpu_state(1).remapped_uncorrected.load(), 3u);
  EXPECT_EQ(state.gpu_state(1).remapped_failed.load(), 1u);
  for (const uint64_t xid : {63u, 64u}) {
    EventView event;
    ASSERT_TRUE(state.WaitEvent(&last, 0, &event));
    EXPECT_EQ(event.data, xid);
  }
  EXPECT_EQ(state.gpu_state(1).recovery_action.load(), 1u);
  EXPECT_THAT(ShowJson(&state), HasSubstr("\"repair_failed\": true"));
}

TEST(InjectTest, ThrottlingTimesCountUntilTheCauseEnds) {
  testing::SimNode node({.profile = "t4", .gpus = 1});
  State& state = node.state();
  SimGpuState& gpu_state = state.gpu_state(0);
  gpu_state.temperature_c = 93;  // slowdown
  gpu_state.power_mw = 69'999;
  state.UpdateThrottling(0);
  const uint64_t start = MonotonicNs();
  while (MonotonicNs() - start < 2'000'000) {
  }
  EXPECT_GE(state.ThermalThrottlingNs(0), 2'000'000u);
  EXPECT_EQ(state.PowerThrottlingNs(0), 0u);
  gpu_state.temperature_c = 92;
  state.UpdateThrottling(0);
  const uint64_t total = state.ThermalThrottlingNs(0);
  EXPECT_GE(total, 2'000'000u);
  EXPECT_EQ(state.ThermalThrottlingNs(0), total);
  gpu_state.power_limit_mw = 69'999;
  state.UpdateThrottling(0);
  EXPECT_NE(gpu_state.power_throttling_since_ns.load(), 0u);
  Recover(&state, 0);
  EXPECT_EQ(state.PowerThrottlingNs(0), 0u);
}

TEST(InjectTest, RecoverClearsPowerLimitAndLockedClocks) {
  testing::SimNode node({.profile = "t4", .gpus = 1});
  SimGpuState& gpu_state = node.state().gpu_state(0);
  gpu_state.power_limit_mw = 65'000;
  gpu_state.locked_graphics_max = 600;
  Recover(&node.state(), 0);
  EXPECT_EQ(gpu_state.power_limit_mw.load(), 0u);
  EXPECT_EQ(gpu_state.locked_graphics_max.load(), 0u);
}

TEST(InjectTest, NvmlErrorsAreNamesOrNumbers) {
  EXPECT_EQ(*NvmlResultFromText("NVML_ERROR_GPU_IS_LOST"), 15u);
  EXPECT_EQ(*NvmlResultFromText("timeout"), 10u);
  EXPECT_EQ(*NvmlResultFromText("17"), 17u);
  EXPECT_FALSE(NvmlResultFromText("nonsense").ok());
}

}  // namespace
}  // namespace tessera::sim
