// SPDX-License-Identifier: Apache-2.0
// Containers of Kubernetes. The runtime requests a grant at the agent's socket, and the grant
// decides what the container gets.
#include <gmock/gmock.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "src/limiter/limits_file.h"
#include "tests/runtime/container_fixture.h"
#include "tests/runtime/one_answer.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class KubernetesContainer : public ContainerFixture {
 protected:
  void SetUp() override {
    ContainerFixture::SetUp();
    if (IsSkipped()) return;
    AddAnnotation("io.kubernetes.cri.container-type", "container");
    AddAnnotation("io.kubernetes.cri.sandbox-uid", "0f5a1c86-1c4f-4d0e-9b3c-0d6f6a9b1a11");
    AddAnnotation("io.kubernetes.cri.sandbox-name", "trainer");
    AddAnnotation("io.kubernetes.cri.sandbox-namespace", "team");
    AddAnnotation("io.kubernetes.cri.container-name", "main");
  }
  grant::Grant GrantOfSecondGpu() const { return tessera::GrantOfSecondGpu(path("driver")); }
};
INSTANTIATE_TEST_SUITE_P(LowLevel, KubernetesContainer, ::testing::Values("runc", "crun"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(KubernetesContainer, WithoutATokenGetsNothingWhateverItsEnvironmentSays) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=all");
  AddEnv("NVIDIA_DRIVER_CAPABILITIES=all");
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0: No such file"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1: No such file"));
  EXPECT_THAT(result.out, HasSubstr("nvidia-smi missing"));
}

// Changes the configuration to what containerd writes for a privileged container: access to any
// device, and a device node for each device of the host.
void MakePrivileged(Json* config) {
  Json* linux_part = config->Find("linux");
  linux_part->Find("resources")
      ->Set("devices",
            ParseJson(R"([{"allow":false,"access":"rwm"},{"allow":true,"access":"rwm"}])").value());
  linux_part->Set("devices", ParseJson(R"([
      {"path":"/dev/nvidia0","type":"c","major":195,"minor":0,"fileMode":438,"uid":0,"gid":0},
      {"path":"/dev/nvidia1","type":"c","major":195,"minor":1,"fileMode":438,"uid":0,"gid":0},
      {"path":"/dev/fuse","type":"c","major":10,"minor":229,"fileMode":438,"uid":0,"gid":0}])")
                                 .value());
}

TEST_P(KubernetesContainer, PrivilegedCanOpenItsOwnGpuAlone) {
  MakePrivileged(&config());
  AddMount("/tmp", "bind", path("driver/dev"), {"bind", "ro"});
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  SetArgs(
      {"/bin/probe", "/dev/nvidia0", "/dev/nvidia1", "/tmp/nvidia0", "/tmp/nvidia1", "/dev/fuse"});
  OneAnswer agent(path("grant.sock"), GrantOfSecondGpu());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0 195:0 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1: No such file"));
  EXPECT_THAT(result.out, HasSubstr("node /tmp/nvidia0 195:0 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /tmp/nvidia1 195:1 mode 666 forbidden"));
  EXPECT_THAT(result.out, Not(HasSubstr("node /dev/fuse 10:229 mode 666 forbidden")));
}

TEST_P(KubernetesContainer, PrivilegedWithoutAGrantCanOpenNoGpu) {
  MakePrivileged(&config());
  AddMount("/tmp", "bind", path("driver/dev"), {"bind", "ro"});
  SetArgs({"/bin/probe", "/dev/nvidia0", "/tmp/nvidia0", "/tmp/nvidia1"});
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0: No such file"));
  EXPECT_THAT(result.out, HasSubstr("node /tmp/nvidia0 195:0 mode 666 forbidden"));
  EXPECT_THAT(result.out, HasSubstr("node /tmp/nvidia1 195:1 mode 666 forbidden"));
}

// The rule that Docker writes for --device-cgroup-rule "c 195:* rwm".
TEST_P(KubernetesContainer, WithARuleForAllGpusCanOpenItsOwnGpuAlone) {
  config()
      .Find("linux")
      ->Find("resources")
      ->Set("devices", ParseJson(R"([{"allow":false,"access":"rwm"},
                               {"allow":true,"type":"c","major":195,"access":"rwm"}])")
                           .value());
  AddMount("/tmp", "bind", path("driver/dev"), {"bind", "ro"});
  SetArgs({"/bin/probe", "/tmp/nvidia0", "/tmp/nvidia1"});
  const SubprocessResult without_grant = Run();
  EXPECT_EQ(without_grant.exit_code, 0) << without_grant.err;
  EXPECT_THAT(without_grant.out, HasSubstr("node /tmp/nvidia0 195:0 mode 666 forbidden"));
  EXPECT_THAT(without_grant.out, HasSubstr("node /tmp/nvidia1 195:1 mode 666 forbidden"));
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  OneAnswer agent(path("grant.sock"), GrantOfSecondGpu());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /tmp/nvidia0 195:0 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /tmp/nvidia1 195:1 mode 666 forbidden"));
}

TEST_P(KubernetesContainer, PrivilegedInASystemNamespaceSeesAllGpus) {
  WriteRuntimeToml("privileged-namespaces = [\"monitoring\", \"team\"]\n");
  MakePrivileged(&config());
  const std::string text = config().Pretty();
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0 195:0 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1 195:1 mode 666 allowed"));
  EXPECT_EQ(ReadFile(bundle() + "/config.json").value(), text);
}

TEST_P(KubernetesContainer, GetsTheGpusOfItsGrant) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=void");
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  AddEnv("CUDA_DEVICE_MEMORY_LIMIT_0=3g");
  AddEnv("CUDA_VISIBLE_DEVICES=0");
  OneAnswer agent(path("grant.sock"), GrantOfSecondGpu());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0 195:0 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1: No such file"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(result.out,
              HasSubstr("env NVIDIA_VISIBLE_DEVICES=GPU-22222222-2222-2222-2222-222222222222\n"));
  const auto request = agent.Finish();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->pod_uid, Uid("0f5a1c86-1c4f-4d0e-9b3c-0d6f6a9b1a11"));
  EXPECT_EQ(request->container, "main");
  ASSERT_EQ(request->tokens.size(), 1u);
  EXPECT_EQ(request->tokens[0].value, "v1:00:00:GPU-1");
  EXPECT_EQ(request->variables, (StringMap{{"CUDA_DEVICE_MEMORY_LIMIT_0", "3g"}}));
}

TEST_P(KubernetesContainer, WithLimitsGetsTheLimiter) {
  ASSERT_TRUE(MakeDirs(path("limits")).ok());
  limiter::LimitsFile limits;
  ASSERT_EQ(limits.Open(path("limits/limits").c_str()), 0);
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  grant::Grant grant = GrantOfSecondGpu();
  grant.limits_dir = path("limits");
  {
    OneAnswer agent(path("grant.sock"), grant);
    const SubprocessResult result = Run();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
    EXPECT_THAT(result.out, HasSubstr("cuInit 801\n"))
        << "the limiter works, and this driver has no cuInit";
  }
  {
    // The limiter comes before a library of the image and before the driver's own library, even if
    // LD_LIBRARY_PATH names their folders.
    AddEnv("LD_LIBRARY_PATH=/dev/tessera/real:/opt/own");
    ASSERT_TRUE(MakeDirs(rootfs() + "/opt/own").ok());
    ASSERT_TRUE(WriteFileAtomically(rootfs() + "/opt/own/libcuda.so.1",
                                    oci::MakeLibrary("libcuda.so.1"), 0644)
                    .ok());
    OneAnswer agent(path("grant.sock"), grant);
    const SubprocessResult result = Run();
    EXPECT_THAT(result.out, HasSubstr("cuInit 801\n")) << result.out << result.err;
  }
  // The same bundle starts again after the file with its limits was lost.
  std::filesystem::remove(path("limits/limits"));
  OneAnswer agent(path("grant.sock"), grant);
  const SubprocessResult result = Run();
  EXPECT_THAT(result.out, HasSubstr("cuInit 800\n"));
  EXPECT_THAT(result.err,
              HasSubstr("cannot read the limits of this container at /dev/tessera/limits/limits"));
}

// However a program loads libcuda, and whichever copies of libcuda the image has, it gets the
// limiter.
TEST_P(KubernetesContainer, EveryWayToTheDriverLeadsToTheLimiter) {
  ASSERT_TRUE(MakeDirs(path("limits")).ok());
  limiter::LimitsFile limits;
  ASSERT_EQ(limits.Open(path("limits/limits").c_str()), 0);
  for (const char* way : {"", "_rpath", "_static"}) {
    std::string name = "/bin/reach" + std::string(way);
    std::ranges::replace(name, '_', '-');
    std::filesystem::copy(TESSERA_REACH + std::string(way), rootfs() + name);
  }
  std::filesystem::copy(TESSERA_REACH, rootfs() + "/bin/reach-setuid");
  ASSERT_EQ(::chmod((rootfs() + "/bin/reach-setuid").c_str(), 04755), 0);
  ASSERT_TRUE(MakeDirs(rootfs() + "/usr/lib/x86_64-linux-gnu").ok());
  for (const char* folder : {"/opt/own", "/usr/local/cuda/compat"}) {
    ASSERT_TRUE(MakeDirs(rootfs() + folder).ok());
    ASSERT_TRUE(WriteFileAtomically(rootfs() + folder + "/libcuda.so.1",
                                    oci::MakeLibrary("libcuda.so.1"), 0644)
                    .ok());
  }
  std::filesystem::copy("/lib64/ld-linux-x86-64.so.2",
                        rootfs() + "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
  AddLinkerCache();
  // The user is not root, so that the setuid program changes the user.
  config().Find("process")->Set("noNewPrivileges", Json::Bool(false));
  config().Find("process")->Find("user")->Set("uid", Json::Int(1000));
  AddEnv("LD_LIBRARY_PATH=/opt/own");
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  SetArgs({"/bin/reach"});
  grant::Grant grant = GrantOfSecondGpu();
  grant.limits_dir = path("limits");
  OneAnswer agent(path("grant.sock"), grant);
  const SubprocessResult result = Run();
  EXPECT_EQ(result.out,
            "dlopen 801\ndeepbind 801\ndlmopen 801\nunversioned 801\npath 801\ndirectory 801\n"
            "LD_LIBRARY_PATH 801\nenv-i 801\nsetuid 801\nrpath 801\nstatic 801\n")
      << result.err;
}

TEST_P(KubernetesContainer, WithoutLimitsGetsTheDriversOwnLibrary) {
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  OneAnswer agent(path("grant.sock"), GrantOfSecondGpu());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("cuInit")));
}

TEST_P(KubernetesContainer, StartedByGpushareHasNoTokenAndGetsTheGpuThatTheAgentTookOver) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  AddEnv("ALIYUN_COM_GPU_MEM_IDX=0");
  OneAnswer agent(path("grant.sock"), GrantOfSecondGpu());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0 195:0 mode 666 allowed"));
  EXPECT_THAT(result.out,
              HasSubstr("env NVIDIA_VISIBLE_DEVICES=GPU-22222222-2222-2222-2222-222222222222\n"));
  const auto request = agent.Finish();
  ASSERT_TRUE(request.has_value());
  EXPECT_TRUE(request->tokens.empty());
}

TEST_P(KubernetesContainer, ThatOnlyClaimsToBeOfGpushareGetsNothing) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=all");
  AddEnv("ALIYUN_COM_GPU_MEM_IDX=0");
  OneAnswer agent(path("grant.sock"), Status(Code::kNotFound, "was given nothing before"));
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0: No such file"));
  EXPECT_TRUE(agent.Finish().has_value());
}

TEST_P(KubernetesContainer, FailsWithTheAgentsReasonWhereItIsRejected) {
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=forged");
  OneAnswer agent(path("grant.sock"), Status(Code::kPermissionDenied, "a forged token"));
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, InfoOf(Code::kPermissionDenied).exit_code);
  EXPECT_THAT(ReadFile(log()).value(), HasSubstr("team/trainer"));
  EXPECT_THAT(ReadFile(log()).value(), HasSubstr("a forged token"));
}

TEST_P(KubernetesContainer, GivesNoAdviceAboutTheAgentIfTheAgentAnswered) {
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  OneAnswer agent(path("grant.sock"), Status(Code::kUnavailable, "the kubelet tries again"));
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, InfoOf(Code::kUnavailable).exit_code);
  EXPECT_THAT(ReadFile(log()).value(), HasSubstr("the kubelet tries again"));
  EXPECT_THAT(result.err, Not(HasSubstr("check that tessera-agent runs")));
}

TEST_P(KubernetesContainer, FailsWithTheSocketsNameWhileNoAgentRuns) {
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, InfoOf(Code::kUnavailable).exit_code);
  EXPECT_THAT(ReadFile(log()).value(), HasSubstr(path("grant.sock")));
  EXPECT_THAT(result.err, HasSubstr("check that tessera-agent runs on this node"));
}

TEST_P(KubernetesContainer, ThatIsASandboxNeedsNoGrant) {
  AddAnnotation("io.kubernetes.cri.container-type", "sandbox");
  AddEnv("TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1");
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nvidia-smi missing"));
}

}  // namespace
}  // namespace tessera
