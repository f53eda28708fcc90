// SPDX-License-Identifier: Apache-2.0
// Engines without Kubernetes in front of tessera-runtime: ctr with a containerd of its own, and
// podman. Each runs in namespaces of its own, so that its processes and mounts end with the test.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/runtime/container_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The folder of containerd's programs: where scripts keep those that they built, else the host's.
std::string FindContainerd() {
  const char* cache = ::getenv("TESSERA_CACHE");
  const char* home = ::getenv("HOME");
  const std::string folder =
      cache != nullptr ? cache : JoinPath(home != nullptr ? home : "/root", ".cache/tessera");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.path().filename().string().starts_with("containerd-")) continue;
    if (PathExists(entry.path() / "containerd") && PathExists(entry.path() / "ctr")) {
      return entry.path();
    }
  }
  return PathExists("/usr/bin/containerd") && PathExists("/usr/bin/ctr") ? "/usr/bin" : "";
}

class Engine : public ContainerFixture {
 protected:
  void SetUp() override {
    ContainerFixture::SetUp();
    if (IsSkipped()) return;
    cgroup_ = fmt::format("tessera-engine-{}", ::getpid());
    // Engines do not hand on their environment.
    const std::string wrapper = fmt::format(
        "#!/bin/sh\nTESSERA_RUNTIME_CONFIG={} exec {} \"$@\"\n", path("runtime.toml"),
        TESSERA_RUNTIME_PROGRAM);
    ASSERT_TRUE(WriteFileAtomically(path("runtime"), wrapper, 0755).ok());
  }

  void TearDown() override {
    std::error_code ignored;
    for (const auto& hierarchy : fs::directory_iterator("/sys/fs/cgroup", ignored)) {
      RemoveCgroup(hierarchy.path() / cgroup_);
    }
    RemoveCgroup("/sys/fs/cgroup/" + cgroup_);
    ContainerFixture::TearDown();
  }

  // Process 1 of the namespace ends with the shell, and all others with it.
  SubprocessResult Shell(const std::string& script) {
    const auto result = RunProgram(
        {"/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
         "--propagation", "private", "/bin/sh", "-c",
        "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && cd " + path("") + " && " +
            script},
        std::chrono::seconds(50));
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : SubprocessResult{};
  }

  SubprocessResult Ctr(const std::string& programs, const std::string& env) {
    const std::string config = fmt::format(
        "version = 3\nroot = \"{0}\"\nstate = \"/run/containerd\"\n"
        "disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\","
        " \"io.containerd.cri.v1.runtime\", \"io.containerd.nri.v1.nri\"]\n"
        "[grpc]\naddress = \"/run/containerd/containerd.sock\"\n",
        path("containerd"));
    EXPECT_TRUE(WriteFileAtomically(path("containerd.toml"), config, 0644).ok());
    return Shell(fmt::format(
        "PATH={0}:$PATH && {{ containerd --config containerd.toml >containerd.log 2>&1 & }} && "
        "i=0; until [ -S /run/containerd/containerd.sock ] || [ $((i+=1)) -gt 300 ]; do sleep 0.1; "
        "done; "
        "ctr run --rm --rootfs --read-only --cgroup /{1} --runc-binary {2} {3} {4} probe "
        "/bin/probe /dev/nvidia0 /dev/nvidia1",
        programs, cgroup_, path("runtime"), env, rootfs()));
  }

  SubprocessResult Podman(const std::string& env) {
    return Shell(fmt::format(
        "podman --root {0}/podman --runroot /run/podman --tmpdir /run/libpod --storage-driver vfs "
        "--cgroup-manager cgroupfs --events-backend none --runtime {0}/runtime run --rm "
        "--network none --cgroup-parent /{1} --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "
        "--read-only {2} --rootfs {3} /bin/probe /dev/nvidia0 /dev/nvidia1",
        path(""), cgroup_, env, rootfs()));
  }

 private:
  static void RemoveCgroup(const fs::path& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.is_directory(ignored)) RemoveCgroup(entry.path());
    }
    ::rmdir(folder.c_str());
  }

  std::string cgroup_;
};
INSTANTIATE_TEST_SUITE_P(LowLevel, Engine, ::testing::Values("runc"),
                         [](const auto& info) { return std::string(info.param); });

// Index 0 of the bus is minor 1 in this driver.
void ExpectGpuZero(const SubprocessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1 195:1 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0: No such file"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(result.out, HasSubstr("nvidia-smi there"));
}

void ExpectNoGpu(const SubprocessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0: No such file"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1: No such file"));
  EXPECT_THAT(result.out, HasSubstr("nvidia-smi missing"));
}

TEST_P(Engine, CtrGivesTheGpuAskedForAndNoneOtherwise) {
  const std::string programs = FindContainerd();
  if (programs.empty()) GTEST_SKIP() << "containerd and ctr are neither built nor installed";
  const auto image = Tree(rootfs());
  ExpectGpuZero(Ctr(programs, "--env NVIDIA_VISIBLE_DEVICES=0"));
  ExpectNoGpu(Ctr(programs, ""));
  EXPECT_EQ(Tree(rootfs()), image);
}

TEST_P(Engine, PodmanGivesTheGpuAskedForAndNoneOtherwise) {
  if (!PathExists("/usr/bin/podman")) GTEST_SKIP() << "podman is not installed";
  ExpectGpuZero(Podman("--env NVIDIA_VISIBLE_DEVICES=0"));
  ExpectNoGpu(Podman(""));
}

}  // namespace
}  // namespace tessera
