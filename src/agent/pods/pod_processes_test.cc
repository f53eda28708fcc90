// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/pod_processes.h"

#include <gtest/gtest.h>

#include "src/base/file.h"
#include "src/gpu/testing/fake_nvml.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

const std::string kUid = "fd3b355a-665c-4c95-8e7f-61fd2111689f";
const std::string kSlice = "kubepods-burstable-podfd3b355a_665c_4c95_8e7f_61fd2111689f.slice";
const std::string kId(64, 'a');

// The test makes its own /proc.
class PodProcessesTest : public ::testing::Test {
 protected:
  void Put(int pid, const std::string& cgroup, char state = 'S', int threads = 1,
           const std::string& name = "a (b) c") {
    const std::string dir = JoinPath(proc_.path(), std::to_string(pid));
    ASSERT_TRUE(MakeDirs(dir).ok());
    ASSERT_TRUE(WriteFileAtomically(dir + "/cgroup", cgroup, 0644).ok());
    std::string stat = fmt::format("{} ({}) {}", pid, name, state);
    for (int field = 4; field < 20; ++field) stat += " 0";
    ASSERT_TRUE(
        WriteFileAtomically(dir + "/stat", fmt::format("{} {} 0\n", stat, threads), 0644).ok());
  }
  std::string Remains(const gpu::ProcessReport& gpus = {}) {
    return TakeProcessSnapshot(proc_.path(), gpus)
        .DescribeRemaining(Uid(kUid), {{.uuid = "GPU-0"}});
  }

  TempDir proc_;
};

TEST_F(PodProcessesTest, FindsProcessesOfBothCgroupVersionsAndDrivers) {
  for (const std::string& cgroup :
       {"0::/kubepods/burstable/pod" + kUid + "/" + kId,
        "0::/kubepods.slice/kubepods-burstable.slice/" + kSlice + "/cri-containerd-" + kId +
            ".scope",
        "5:freezer:/kubepods/pod" + kUid + "\n4:memory:/\n0::/\n",
        "11:pids:/\n3:devices:/kubepods.slice/" + kSlice + "/crio-" + kId + ".scope\n"}) {
    Put(4711, cgroup);
    EXPECT_EQ(Remains(), "its process 4711 (state S) still exists") << cgroup;
  }
}

TEST_F(PodProcessesTest, AProcessThatHangsOrIsFrozenRemains) {
  Put(31, "0::/kubepods/pod" + kUid + "/x", 'D');
  EXPECT_EQ(Remains(), "its process 31 (state D) still exists");
  Put(9, "0::/kubepods/pod" + kUid + "/x", 'T');
  EXPECT_EQ(Remains(), "2 of its processes still exist, the first is 9 (state T)");
}

TEST_F(PodProcessesTest, AZombieCountsOnlyIfOneOfItsThreadsLives) {
  Put(31, "0::/kubepods/pod" + kUid + "/x", 'Z');
  EXPECT_EQ(Remains(), "");
  Put(31, "0::/kubepods/pod" + kUid + "/x", 'Z', 2);
  EXPECT_EQ(Remains(), "its process 31 (state Z) still exists");
}

TEST_F(PodProcessesTest, ProcessesOutsideThePodAreNotCounted) {
  Put(1, "0::/init.scope");
  Put(2, "0::/kubepods/pod0d3b355a-665c-4c95-8e7f-61fd2111689f/x");
  EXPECT_EQ(Remains(), "");
}

TEST_F(PodProcessesTest, AProcessThatTheDriverStillListsAfterItsExitHoldsItsGpu) {
  Put(2, "0::/init.scope");
  EXPECT_EQ(Remains({.status = {}, .gpus = {{.uuid = "GPU-0", .processes = {{.pid = 2}}}}}), "");
  EXPECT_EQ(Remains({.status = {}, .gpus = {{.uuid = "GPU-1", .processes = {{.pid = 3}}}}}), "");
  EXPECT_EQ(Remains({.status = {}, .gpus = {{.uuid = "GPU-0", .processes = {{.pid = 3}}}}}),
            "the driver still lists process 3, which has exited, on GPU-0");
}

TEST_F(PodProcessesTest, WithoutProcNothingIsKnown) {
  EXPECT_FALSE(TakeProcessSnapshot("/nonexistent", {}).status.ok());
}

TEST_F(PodProcessesTest, AnswersAfterItHasReadTheDriverAndProc) {
  FakeTaskRunner runner;
  gpu::testing::FakeCaller caller(&runner);
  auto loader = std::make_shared<gpu::testing::FakeLoader>();
  loader->driver = gpu::testing::FakeDriver::WithGpus(1);
  loader->driver->gpus[0].processes = {{.pid = 77}};
  gpu::ProcessReader reader(&runner, loader, &caller);
  NodeProcesses processes(proc_.path(), &reader, &caller);
  Put(31, "0::/kubepods/pod" + kUid + "/x", 'D');
  std::optional<ProcessSnapshot> seen;
  processes.Read([&](const ProcessSnapshot& snapshot) { seen = snapshot; });
  EXPECT_FALSE(seen);
  runner.RunUntilIdle();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->by_pod.at(Uid(kUid)), (std::vector<ProcessSnapshot::LiveProcess>{{31, 'D'}}));
  EXPECT_EQ(seen->exited_on_gpu.size(), 1u);
  // GPUs are released also while the driver is unloaded.
  loader->driver = nullptr;
  runner.AdvanceTimeAndRun(1s);
  processes.Read([&](const ProcessSnapshot& snapshot) { seen = snapshot; });
  runner.AdvanceTimeAndRun(1s);
  EXPECT_TRUE(seen->status.ok());
}

}  // namespace
}  // namespace tessera::agent
