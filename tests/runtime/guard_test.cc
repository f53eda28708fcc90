// SPDX-License-Identifier: Apache-2.0
// Tests the guard with a real containerd that does not serve with our configuration. The container
// that changed the configuration is killed with all its processes. The guard runs in another
// container of the same containerd, as it does in the DaemonSet.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/engine/engine_programs.h"
#include "tests/runtime/engine_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNoBuiltContainerd[] = "no containerd: build the test cluster's parts";

// How the engine behaves with our configuration.
enum class EngineBehavior {
  kEnds,        // the engine ends each time it is started
  kServesNoCri  // the engine serves its own API, but not the kubelet's interface
};

class EngineGuard : public EngineFixture {
 protected:
  void SetUp() override {
    EngineFixture::SetUp();
    if (IsSkipped()) return;
    fs::create_directories(path("etc"));
    for (const char* folder :
         {"host/etc/containerd", "host/etc/tessera", "host/opt/tessera", "host/run/containerd"}) {
      fs::create_directories(JoinPath(rootfs(), folder));
    }
    fs::copy_file(TESSERA_RUNTIME_PROGRAM, rootfs() + "/tessera-runtime");
  }

  std::string Config(int version, bool cri) const {
    return fmt::format(
        "version = {1}\nroot = \"{0}\"\nstate = \"/run/containerd\"\n"
        "disabled_plugins = [\"io.containerd.nri.v1.nri\"{2}]\n"
        "[grpc]\naddress = \"/run/containerd/containerd.sock\"\n"
        "[plugins.\"io.containerd.internal.v1.opt\"]\n  path = \"{0}/opt\"\n",
        path("containerd"), version,
        cri ? "" : ", \"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.runtime\"");
  }

  // Prints what happens, and "back" once the engine serves as before.
  SubprocessResult KillTheWholeRun(const std::string& programs, int version,
                                   EngineBehavior behavior) {
    EXPECT_TRUE(WriteFileAtomically(path("etc/config.toml"), Config(version, true), 0644).ok());
    EXPECT_TRUE(WriteFileAtomically(path("no-cri.toml"), Config(version, false), 0644).ok());
    return Shell(fmt::format(
        R"(PATH={0}:$PATH; export CONTAINERD_ADDRESS=/run/containerd/containerd.sock
supervise() {{
  while :; do
    if grep -rqs bin/tessera-runtime etc/config.toml etc/conf.d; then touch changed; {1}
    else containerd --config etc/config.toml >>containerd.log 2>&1; fi
    sleep 0.1
  done
}}
serves() {{ ctr plugins ls 2>/dev/null | grep -qE 'grpc.v1 +cri .* ok'; }}
await() {{
  i=0
  until "$@" >/dev/null 2>&1; do
    [ $((i+=1)) -lt 300 ] || {{ echo "waited in vain: $*"; exit 1; }}
    sleep 0.1
  done
}}
bind() {{ echo "--mount type=bind,src=$1,dst=/host$2,options=rbind:rw"; }}
start() {{
  name=$1; shift
  ctr run --detach --rootfs --cgroup /{2}/$name --with-ns pid:/proc/1/ns/pid \
    --log-uri file://$PWD/$name.log $(bind $PWD/etc /etc/containerd) \
    $(bind $PWD/opt /opt/tessera) $(bind $PWD/settings /etc/tessera) \
    $(bind /run/containerd /run/containerd) {3} $name \
    /tessera-runtime configure --engine containerd --host-root /host "$@"
}}
processes() {{
  cat /sys/fs/cgroup/pids/{2}/$1/cgroup.procs 2>/dev/null || cat /sys/fs/cgroup/{2}/$1/cgroup.procs
}}
mkdir -p opt settings
supervise &
await serves
start guard --guard --timeout 2
start run --install --set-as-default --timeout 600
await test -e changed
await grep '"pending": true' etc/config.toml.tessera-record
echo "killed: $(processes run | wc -l) processes"
kill -KILL $(processes run)
await test ! -e etc/config.toml.tessera-record
await serves
await grep 'serves again' guard.log
echo "guard: $(processes guard | wc -l) process"
cat guard.log
ls etc
echo back)",
        programs,
        behavior == EngineBehavior::kEnds ? "false"
                                          : "containerd --config no-cri.toml >>containerd.log 2>&1",
        cgroup(), rootfs()));
  }

  void ExpectPutBack(const std::string& programs, int version, EngineBehavior behavior) {
    const SubprocessResult result = KillTheWholeRun(programs, version, behavior);
    const std::string all = result.out + result.err + ReadFile(path("run.log")).value_or("") +
                            ReadFile(path("guard.log")).value_or("") +
                            ReadFile(path("containerd.log")).value_or("");
    ASSERT_EQ(result.exit_code, 0) << all;
    EXPECT_THAT(result.out, HasSubstr("killed: 2 processes\n")) << all;
    EXPECT_THAT(result.out, HasSubstr("guard: 1 process\n"));
    EXPECT_THAT(result.out, HasSubstr("every file is restored to its state before Tessera"));
    EXPECT_THAT(result.out, HasSubstr("\nconfig.toml\nback\n"));
    EXPECT_EQ(ReadFile(path("etc/config.toml")).value(), Config(version, true));
  }
};
INSTANTIATE_TEST_SUITE_P(LowLevel, EngineGuard, ::testing::Values("runc"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EngineGuard, UndoesTheChangeOfAContainerThatWasKilledWithAllItsProcesses) {
  const std::string built = BuiltContainerd();
  if (built.empty()) GTEST_SKIP() << kNoBuiltContainerd;
  ExpectPutBack(built, 3, EngineBehavior::kEnds);
}

TEST_P(EngineGuard, UndoesAChangeThatLeavesTheKubeletWithoutItsInterface) {
  const std::string built = BuiltContainerd();
  if (built.empty()) GTEST_SKIP() << kNoBuiltContainerd;
  ExpectPutBack(built, 3, EngineBehavior::kServesNoCri);
}

TEST_P(EngineGuard, UndoesTheChangeOfContainerd17Too) {
  const auto debian = DebianEngine(FETCH_DEBS, "containerd-1.7");
  if (!debian.ok()) GTEST_SKIP() << "no containerd: " << debian.status().message();
  ExpectPutBack(*debian + "/usr/bin", 2, EngineBehavior::kEnds);
}

TEST_P(EngineGuard, UndoesAChangeThatLeavesTheKubeletWithoutTheInterfaceOfContainerd17) {
  const auto debian = DebianEngine(FETCH_DEBS, "containerd-1.7");
  if (!debian.ok()) GTEST_SKIP() << "no containerd: " << debian.status().message();
  ExpectPutBack(*debian + "/usr/bin", 2, EngineBehavior::kServesNoCri);
}

}  // namespace
}  // namespace tessera
