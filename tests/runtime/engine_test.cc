// SPDX-License-Identifier: Apache-2.0
// Engines without Kubernetes in front of tessera-runtime: ctr with a containerd of its own, dockerd
// and podman.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/engine/engine_programs.h"
#include "tests/runtime/engine_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Engine : public EngineFixture {
 protected:
  SubprocessResult Ctr(const std::string& programs, int version, const std::string& env) {
    const std::string config = fmt::format(
        "version = {1}\nroot = \"{0}\"\nstate = \"/run/containerd\"\n"
        "disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\","
        " \"io.containerd.cri.v1.runtime\", \"io.containerd.nri.v1.nri\"]\n"
        "[grpc]\naddress = \"/run/containerd/containerd.sock\"\n",
        path("containerd"), version);
    EXPECT_TRUE(WriteFileAtomically(path("containerd.toml"), config, 0644).ok());
    return Shell(fmt::format(
        "PATH={0}:$PATH && {{ containerd --config containerd.toml >containerd.log 2>&1 & }} && "
        "i=0; until [ -S /run/containerd/containerd.sock ] || [ $((i+=1)) -gt 300 ]; do sleep 0.1; "
        "done; "
        "ctr run --rm --rootfs --read-only --cgroup /{1} --runc-binary {2} {3} {4} probe "
        "/bin/probe /dev/nvidia0 /dev/nvidia1",
        programs, cgroup(), path("runtime"), env, rootfs()));
  }

  // Starts a dockerd in its own folders, and runs a container before it is configured, after that,
  // and after the configuration is undone. Also prints what ldconfig wrote to a container's layer.
  SubprocessResult Docker(const std::string& programs) {
    const std::string config = fmt::format(
        "{{\n\t\"data-root\": \"{0}/docker\",\n\t\"exec-root\": \"/run/docker\",\n"
        "\t\"hosts\": [\"unix:///run/docker.sock\"], \"storage-driver\": \"vfs\",\n"
        "\t\"bridge\": \"none\", \"iptables\": false, \"cgroup-parent\": \"/{1}\"\n}}\n",
        path(""), cgroup());
    EXPECT_TRUE(WriteFileAtomically(path("daemon.json"), config, 0644).ok());
    fs::copy_file("/sbin/ldconfig", rootfs() + "/bin/ldconfig");
    const SubprocessResult result = Shell(fmt::format(
        R"(export PATH={0}/usr/bin:{0}/usr/sbin:$PATH
LD_LIBRARY_PATH={0}/lib/x86_64-linux-gnu dockerd --config-file $PWD/daemon.json >dockerd.log 2>&1 &
i=0; until docker version >/dev/null 2>&1 || [ $((i+=1)) -gt 300 ]; do sleep 0.1; done
tar -C {1} -c . | docker import - probe >/dev/null
set -e
run() {{ docker run --rm --network none -e NVIDIA_VISIBLE_DEVICES=$1 probe /bin/probe /dev/nvidia0 /dev/nvidia1; }}
configure="{2} configure --engine docker --config $PWD/daemon.json --socket /run/docker.sock --runtime-path $PWD/runtime"
echo before; run 0
$configure --set-as-default 2>&1
docker info --format 'default {{{{.DefaultRuntime}}}}'
echo configured; run 0
echo void; run void
docker run --name layer --network none -e NVIDIA_VISIBLE_DEVICES=0 probe /bin/ldconfig && echo ldconfig succeeded
docker diff layer; echo that is all
$configure --undo 2>&1
docker info --format 'default {{{{.DefaultRuntime}}}}'
echo undone; run 0
docker rm layer >/dev/null)",
        programs, rootfs(), TESSERA_RUNTIME_PROGRAM));
    EXPECT_EQ(ReadFile(path("daemon.json")).value(), config) << "not put back byte for byte";
    return result;
  }

  SubprocessResult Podman(const std::string& env) {
    return Shell(fmt::format(
        "podman --root {0}/podman --runroot /run/podman --tmpdir /run/libpod --storage-driver vfs "
        "--cgroup-manager cgroupfs --events-backend none --runtime {0}/runtime run --rm "
        "--network none --cgroup-parent /{1} --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "
        "--read-only {2} --rootfs {3} /bin/probe /dev/nvidia0 /dev/nvidia1",
        path(""), cgroup(), env, rootfs()));
  }
};
INSTANTIATE_TEST_SUITE_P(LowLevel, Engine, ::testing::Values("runc"),
                         [](const auto& info) { return std::string(info.param); });

// In this driver, the GPU with index 0 by bus address has minor 1.
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

// Returns what the script printed between the words `from` and `to`.
SubprocessResult Between(const SubprocessResult& result, const std::string& from,
                         const std::string& to) {
  const size_t begin = result.out.find(from + "\n");
  const size_t end = result.out.find(to + "\n", begin);
  EXPECT_NE(end, std::string::npos) << from << " to " << to << " is not in " << result.out;
  return {0, begin == std::string::npos ? "" : result.out.substr(begin, end - begin), result.err};
}

TEST_P(Engine, DockerIsConfiguredGivesTheRequestedGpuAndIsRestored) {
  const auto programs = DebianEngine(FETCH_DEBS, "docker");
  if (!programs.ok()) GTEST_SKIP() << programs.status().message();
  AddLinkerCache();
  const SubprocessResult result = Docker(*programs);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err
                                 << ReadFile(path("dockerd.log")).value_or("");
  ExpectNoGpu(Between(result, "before", "default nvidia"));
  ExpectGpuZero(Between(result, "configured", "void"));
  ExpectNoGpu(Between(result, "void", "ldconfig succeeded"));
  const std::string layer = Between(result, "ldconfig succeeded", "that is all").out;
  EXPECT_THAT(layer, HasSubstr("A /etc/ld.so.conf.d/00-tessera.conf\n"));
  EXPECT_THAT(layer, HasSubstr("C /etc/ld.so.cache\n"));
  EXPECT_THAT(layer, Not(HasSubstr(".so.1")));
  ExpectNoGpu(Between(result, "default runc\nundone", "driver file No such file or directory"));
}

TEST_P(Engine, CtrGivesTheRequestedGpuAndOtherwiseNone) {
  const auto image = Tree(rootfs());
  const std::string built = BuiltContainerd();
  if (!built.empty()) {
    ExpectGpuZero(Ctr(built, 3, "--env NVIDIA_VISIBLE_DEVICES=0"));
    ExpectNoGpu(Ctr(built, 3, ""));
    EXPECT_EQ(Tree(rootfs()), image);
  }
  const auto debian = DebianEngine(FETCH_DEBS, "containerd-1.7");
  if (debian.ok()) {
    ExpectGpuZero(Ctr(*debian + "/usr/bin", 2, "--env NVIDIA_VISIBLE_DEVICES=0"));
    ExpectNoGpu(Ctr(*debian + "/usr/bin", 2, ""));
    EXPECT_EQ(Tree(rootfs()), image);
  }
  if (built.empty() && !debian.ok()) GTEST_SKIP() << "no containerd: " << debian.status().message();
}

TEST_P(Engine, FindsALowLevelRuntimeOfCriosPackages) {
  const std::string settings = "runtimes = [\"runc-of-crio\"]\n";
  ASSERT_TRUE(WriteFileAtomically(path("crio.toml"), settings, 0644).ok());
  const SubprocessResult result =
      Shell(fmt::format("mount -t tmpfs tmpfs /usr/libexec && mkdir /usr/libexec/crio && "
                        "cp $(command -v runc) /usr/libexec/crio/runc-of-crio && "
                        "TESSERA_RUNTIME_CONFIG=$PWD/crio.toml {} --version",
                        TESSERA_RUNTIME_PROGRAM));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("version"));
}

TEST_P(Engine, PodmanGivesTheRequestedGpuAndOtherwiseNone) {
  if (!PathExists("/usr/bin/podman")) GTEST_SKIP() << "podman is not installed";
  ExpectGpuZero(Podman("--env NVIDIA_VISIBLE_DEVICES=0"));
  ExpectNoGpu(Podman(""));
}

}  // namespace
}  // namespace tessera
