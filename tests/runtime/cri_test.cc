// SPDX-License-Identifier: Apache-2.0
// The container engines of Kubernetes, each in its own namespaces. A test configures the engine,
// runs containers through the kubelet's interface, and undoes the configuration. cri-run takes the
// place of the kubelet, and OneAnswer takes the place of the agent.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/engine/engine_programs.h"
#include "tests/runtime/engine_fixture.h"
#include "tests/runtime/one_answer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kImage[] = "tessera.test/probe:1";

struct CriEngine {
  std::string name;      // the value of --engine
  std::string programs;  // the folder of its programs
  std::string config;    // the text of its main configuration file
  std::string socket;    // below the /run of the test
  std::string start;     // a script that keeps the engine running, as a supervisor does
  std::string load;      // a script that loads the image in probe.tar into the engine
};

class Cri : public EngineFixture {
 protected:
  void SetUp() override {
    EngineFixture::SetUp();
    if (IsSkipped()) return;
    cri_run_ = BuiltPart("containerd", "cri-run");
    if (cri_run_.empty()) GTEST_SKIP() << "no cri-run: build the test cluster's parts";
    for (const char* folder : {"etc", "logs", "cni", "image"}) fs::create_directories(path(folder));
  }

  // `version` is that of the configuration file: 3 for containerd 2, and 2 for containerd 1.7.
  CriEngine Containerd(const std::string& programs, int version) const {
    // Machines without CAP_SYS_RESOURCE may not lower the score by which the kernel ends processes.
    const std::string cri = fmt::format(
        fmt::runtime(version == 3 ? "[plugins.\"io.containerd.cri.v1.runtime\"]\n"
                                    "  restrict_oom_score_adj = true\n"
                                    "[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n"
                                    "  sandbox = \"{}\"\n"
                                  : "[plugins.\"io.containerd.grpc.v1.cri\"]\n"
                                    "  restrict_oom_score_adj = true\n  sandbox_image = \"{}\"\n"),
        kImage);
    return {"containerd",
            programs,
            fmt::format("version = {1}\nroot = \"{0}\"\nstate = \"/run/containerd\"\n"
                        "disabled_plugins = [\"io.containerd.nri.v1.nri\"]\n"
                        "[grpc]\naddress = \"/run/containerd/containerd.sock\"\n"
                        "[plugins.\"io.containerd.internal.v1.opt\"]\n  path = \"{0}/opt\"\n"
                        "{2}",
                        path("containerd"), version, cri),
            "/run/containerd/containerd.sock",
            "while :; do containerd --config etc/config.toml >>engine.log 2>&1; sleep 0.1; done",
            "ctr -a /run/containerd/containerd.sock -n k8s.io images import probe.tar"};
  }

  CriEngine Crio(const std::string& programs) const {
    const std::string policy = "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}";
    EXPECT_TRUE(WriteFileAtomically(path("policy.json"), policy, 0644).ok());
    return {"crio",
            programs,
            fmt::format(R"([crio]
root = "{0}/storage"
runroot = "/run/storage"
storage_driver = "vfs"
version_file = ""
clean_shutdown_file = ""
[crio.api]
listen = "/run/crio/crio.sock"
stream_port = "0"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
pinns_path = "{1}/pinns"
namespaces_dir = "/run/crio/ns"
container_exits_dir = "/run/crio/exits"
hooks_dir = []
apparmor_profile = "unconfined"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
monitor_path = "/usr/bin/conmon"
[crio.image]
pause_image = "{2}"
pause_command = ""
signature_policy = "{0}/policy.json"
[crio.network]
network_dir = "{0}/cni"
plugin_dirs = ["{0}/cni"]
[crio.nri]
enable_nri = false
)",
                        path(""), programs, kImage),
            "/run/crio/crio.sock",
            "while :; do crio --config etc/config.toml --config-dir etc/conf.d >>engine.log 2>&1; "
            "sleep 0.1; done",
            fmt::format("podman --root {0}/storage --runroot /run/storage --tmpdir /run/libpod "
                        "--storage-driver vfs load --quiet --input probe.tar",
                        path(""))};
  }

  SubprocessResult ConfigureRunUndo(const CriEngine& engine) {
    EXPECT_TRUE(WriteFileAtomically(path("etc/config.toml"), engine.config, 0644).ok());
    return Shell(fmt::format(
        R"(PATH={0}:$PATH
tar -C {1} -c . >image/layer.tar
layer=$(sha256sum image/layer.tar | cut -d' ' -f1)
echo '{{"architecture":"amd64","os":"linux","config":{{"Entrypoint":["/bin/probe-static","--pause"]}},
"rootfs":{{"type":"layers","diff_ids":["sha256:'$layer'"]}}}}' >image/config.json
echo '[{{"Config":"config.json","RepoTags":["{2}"],"Layers":["layer.tar"]}}]' >image/manifest.json
tar -C image -cf probe.tar manifest.json config.json layer.tar
{3} >/dev/null &
await() {{
  i=0
  until "$@" >/dev/null 2>&1; do
    [ $((i+=1)) -lt 200 ] || {{ echo "waited in vain: $*"; exit 1; }}
    sleep 0.1
  done
}}
run() {{
  name=$1; shift
  {4}/cri-run --socket {5} --image {2} --cgroup-parent /{6} --logs $PWD/logs "$@" $name \
    /bin/probe /dev/nvidia0 /dev/nvidia1
}}
configure() {{
  {7} configure --engine {8} --config $PWD/etc/config.toml --socket {5} \
    --drop-in-config $PWD/etc/conf.d/99-tessera.toml --runtime-path $PWD/runtime \
    --validate-command $(command -v {8}) "$@"
}}
token="--env TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-1"
{9}
await test -S {5}
await {10}
set -e
echo; echo before; run before $token
[ {8} != crio ] || configure --set-as-default 2>&1 || echo "auto: $?"
configure --set-as-default --restart-mode signal 2>&1
echo configured; run granted $token
echo without; run without --env NVIDIA_VISIBLE_DEVICES=all
configure --undo --restart-mode signal 2>&1
echo undone; run undone $token
echo that is all
find etc -type f)",
        engine.programs, rootfs(), kImage, engine.start, cri_run_, engine.socket, cgroup(),
        TESSERA_RUNTIME_PROGRAM, engine.name, engine.name == "crio" ? engine.load : "",
        engine.name == "crio" ? "true" : engine.load));
  }

  // Returns what the script printed.
  std::string ExpectConfiguredUsedAndPutBack(const CriEngine& engine) {
    std::optional<SubprocessResult> result;
    std::optional<grant::GrantRequest> request;
    {
      OneAnswer agent(path("grant.sock"), GrantOfSecondGpu(path("driver")));
      result = ConfigureRunUndo(engine);
      request = agent.Finish();
    }
    EXPECT_EQ(result->exit_code, 0)
        << result->out << result->err << ReadFile(path("engine.log")).value_or("");
    const auto part = [&](const std::string& from, const std::string& to) {
      const size_t begin = result->out.find("\n" + from + "\n");
      const size_t end = result->out.find("\n" + to + "\n");
      EXPECT_LT(begin, end) << result->out;
      return begin < end ? result->out.substr(begin, end - begin) : "";
    };
    const std::string granted = part("configured", "without");
    EXPECT_THAT(granted, HasSubstr("node /dev/nvidia0 195:0 mode 666 allowed"));
    EXPECT_THAT(granted, HasSubstr("node /dev/nvidia1: No such file"));
    EXPECT_THAT(granted, HasSubstr("library libcuda.so.1 loaded"));
    EXPECT_THAT(granted, HasSubstr("nvidia-smi there"));
    for (const std::string& none :
         {part("before", "configured"), part("without", "undone"), part("undone", "that is all")}) {
      EXPECT_THAT(none, HasSubstr("node /dev/nvidia0: No such file"));
      EXPECT_THAT(none, HasSubstr("nvidia-smi missing"));
    }
    EXPECT_EQ(ReadFile(path("etc/config.toml")).value(), engine.config);
    EXPECT_THAT(result->out, HasSubstr("\nthat is all\netc/config.toml\n"));
    EXPECT_TRUE(request.has_value()) << "the runtime did not request the grant";
    if (!request) return result->out;
    EXPECT_EQ(request->pod_uid, Uid("0f5a1c86-1c4f-4d0e-9b3c-0d6f6a9b1a11"));
    EXPECT_EQ(request->container, "main");
    return result->out;
  }

 private:
  std::string cri_run_;
};
INSTANTIATE_TEST_SUITE_P(LowLevel, Cri, ::testing::Values("runc"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Cri, Containerd2IsConfiguredGivesTheGrantAndIsRestored) {
  const std::string built = BuiltContainerd();
  ExpectConfiguredUsedAndPutBack(Containerd(built, 3));
}

TEST_P(Cri, Containerd17IsConfiguredGivesTheGrantAndIsRestored) {
  const auto debian = DebianEngine(FETCH_DEBS, "containerd-1.7");
  if (!debian.ok()) GTEST_SKIP() << "no containerd 1.7: " << debian.status().message();
  ExpectConfiguredUsedAndPutBack(Containerd(*debian + "/usr/bin", 2));
}

TEST_P(Cri, CrioIsConfiguredGivesTheGrantAndIsRestored) {
  const std::string built = BuiltPart("crio", "crio");
  if (built.empty()) {
    GTEST_SKIP()
        << "no CRI-O: its build takes four to five CPU minutes; scripts/check --long does it";
  }
  if (!PathExists("/usr/bin/conmon")) GTEST_SKIP() << "CRI-O needs conmon";
  // CRI-O does not read new runtimes on SIGHUP, and it is unknown whether its supervisor would
  // start it again after SIGTERM, so configure only asks for a restart.
  EXPECT_THAT(
      ExpectConfiguredUsedAndPutBack(Crio(built)),
      AllOf(HasSubstr("crio uses a new runtime only after a restart"), HasSubstr("auto: 78\n")));
}

}  // namespace
}  // namespace tessera
