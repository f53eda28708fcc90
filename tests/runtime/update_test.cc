// SPDX-License-Identifier: Apache-2.0
// An engine that changes the limits of a running container sends all resources that it knows. It
// does not know the GPU, and the container must keep the GPU nevertheless.
#include <gmock/gmock.h>

#include "tests/runtime/engine_fixture.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// What containerd sends for UpdateContainerResources, which the kubelet's CPU manager calls every
// ten seconds.
constexpr char kResources[] =
    R"({"devices":[{"allow":false,"access":"rwm"},
      {"allow":true,"type":"c","major":1,"minor":3,"access":"rwm"}]})";

class Update : public EngineFixture {
 protected:
  // `view` is a script that mounts at /sys/fs/cgroup the hierarchy that the test needs.
  SubprocessResult UpdateWhileItRuns(const std::string& view) {
    AddEnv("NVIDIA_VISIBLE_DEVICES=0");
    AddMount("/tmp", "bind", path("driver/dev"), {"bind", "ro"});
    SetArgs({"/bin/probe-static", "--pause"});
    config().Find("linux")->Set("cgroupsPath", Json::String("/" + cgroup()));
    EXPECT_TRUE(WriteFileAtomically(bundle() + "/config.json", config().Pretty(), 0600).ok());
    EXPECT_TRUE(WriteFileAtomically(path("resources.json"), kResources, 0644).ok());
    return Shell(fmt::format(R"(set -e
{0}
runtime="{1} --root /run/state"
$runtime run --detach --bundle bundle probe >/dev/null 2>run.log </dev/null || {{ cat run.log; exit 1; }}
trap '$runtime delete --force probe' EXIT
look() {{ echo $1; $runtime exec probe /bin/probe /dev/nvidia1 /tmp/nvidia0; }}
look before
$runtime update --resources resources.json probe
look after)",
                             view, TESSERA_RUNTIME_PROGRAM));
  }

  void ExpectKeepsItsGpu(const SubprocessResult& result) {
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    const size_t update = result.out.find("after\n");
    ASSERT_NE(update, std::string::npos) << result.out;
    for (const std::string& part : {result.out.substr(0, update), result.out.substr(update)}) {
      EXPECT_THAT(part, HasSubstr("node /dev/nvidia1 195:1 mode 666 allowed"));
      EXPECT_THAT(part, HasSubstr("node /tmp/nvidia0 195:0 mode 666 forbidden"));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(LowLevel, Update, ::testing::Values("runc", "crun"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Update, KeepsTheGpuOnCgroupV1) {
  if (!PathExists("/sys/fs/cgroup/devices"))
    GTEST_SKIP() << "no hierarchy of version 1 for devices";
  ExpectKeepsItsGpu(
      UpdateWhileItRuns("[ ! -d /sys/fs/cgroup/unified ] || umount -l /sys/fs/cgroup/unified"));
}

TEST_P(Update, KeepsTheGpuOnCgroupV2) {
  ExpectKeepsItsGpu(UpdateWhileItRuns(
      "mount -t cgroup2 cgroup2 /sys/fs/cgroup; ulimit -l unlimited 2>/dev/null || "
      "export LD_PRELOAD=" TESSERA_MEMLOCK));
}

}  // namespace
}  // namespace tessera
