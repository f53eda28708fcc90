// SPDX-License-Identifier: Apache-2.0
// The real containerd in its own folders. A supervisor keeps it running, as systemd would.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/file.h"
#include "src/base/subprocess.h"
#include "src/formats/toml.h"
#include "src/runtime/engine/configurator.h"
#include "tests/engine/engine_programs.h"

namespace tessera::engine {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the path of containerd: Debian's package for version 1.7, otherwise the program that the
// test cluster built. $TESSERA_CONTAINERD overrides both.
Result<std::string> FindContainerd(const std::string& version) {
  if (const char* given = std::getenv("TESSERA_CONTAINERD")) return std::string(given);
  if (version == "1.7") {
    ASSIGN_OR_RETURN(const std::string folder, DebianEngine(FETCH_DEBS, "containerd-1.7"));
    return folder + "/usr/bin/containerd";
  }
  const std::string folder = BuiltContainerd();
  if (!folder.empty()) return folder + "/containerd";
  return Error(Code::kNotFound,
               "no containerd: build the test cluster's parts, or set TESSERA_CONTAINERD");
}

// A process that starts the program again whenever it ends. Both processes end with the object, and
// also if the test dies.
class Supervisor {
 public:
  Supervisor(const std::string& program, const std::string& config, const std::string& log) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    static volatile pid_t child = 0;
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (child > 0) ::kill(child, SIGKILL);
      ::_exit(0);
    };
    ::sigaction(SIGTERM, &action, nullptr);
    for (;;) {
      child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (std::freopen(log.c_str(), "a", stderr) == nullptr) ::_exit(1);
        ::execl(program.c_str(), program.c_str(), "--config", config.c_str(), nullptr);
        ::_exit(127);
      }
      ::waitpid(child, nullptr, 0);
      ::usleep(50'000);  // as systemd's RestartSec
    }
  }
  ~Supervisor() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

 private:
  pid_t pid_ = -1;
};

class ContainerdTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "containerd needs root";
    const auto program = FindContainerd(GetParam());
    if (!program.ok()) GTEST_SKIP() << program.status().message();
    program_ = *program;
    ASSERT_TRUE(MakeDirs(Path("etc")).ok());
    options_.settings.config = Path("etc/config.toml");
    options_.settings.drop_in = Path("etc/conf.d/99-tessera.toml");
    options_.settings.runtime_path = "/opt/tessera/bin/tessera-runtime";
    options_.settings.set_as_default = true;
    options_.validate_program = program_;
    options_.reload.socket = Path("c.sock");
    options_.reload.mode = RestartMode::kSignal;
    options_.reload.timeout = std::chrono::seconds(30);
  }

  std::string Path(const std::string& name) const { return JoinPath(dir_.path(), name); }

  static bool Is17() { return GetParam() == std::string_view("1.7"); }
  // The version line of the configuration that this containerd writes by default.
  static std::string OwnVersion() { return Is17() ? "version = 2\n" : "version = 3\n"; }

  // The part of the configuration that gives this containerd its own folders and sockets.
  std::string Preamble(const std::string& version_line) const {
    return fmt::format(R"({}root = "{}"
state = "{}"
[grpc]
  address = "{}"
[ttrpc]
  address = "{}"
)",
                       version_line, Path("root"), Path("state"), Path("c.sock"), Path("t.sock"));
  }
  static constexpr char kPrivateV2[] =
      "[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n"
      "[plugins.\"io.containerd.internal.v1.opt\"]\n  path = \"{}\"\n";
  std::string PrivatePlugins() const { return fmt::format(fmt::runtime(kPrivateV2), Path("opt")); }

  void Start(const std::string& config) {
    ASSERT_TRUE(WriteFileAtomically(options_.settings.config, config, 0644).ok());
    supervisor_.emplace(program_, options_.settings.config, Path("log"));
    for (int i = 0; i < 600 && !Query().ok(); ++i) ::usleep(50'000);
    ASSERT_TRUE(Query().ok()) << ReadFile(Path("log")).value_or("");
  }
  Result<EngineInfo> Query() const {
    return QueryEngine(EngineKind::kContainerd, Path("c.sock"), std::chrono::seconds(5));
  }
  Result<Outcome> Configure() { return Configurator(options_, &host_).Configure(); }
  Result<Outcome> Undo() { return Configurator(options_, &host_).Undo(); }

  void ExpectConfigures(const std::string& config) {
    Start(config);
    ASSERT_TRUE(Query()->serves_cri) << ReadFile(Path("log")).value_or("");
    EXPECT_THAT(Query()->runtimes, Not(Contains("nvidia")));

    const auto outcome = Configure();
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    EXPECT_TRUE(outcome->changed);
    // Before containerd 2.1, a drop-in would replace the section of the main file, so the main file
    // is changed instead.
    EXPECT_EQ(PathExists(options_.settings.drop_in), !Is17());
    const auto answer = Query();
    ASSERT_TRUE(answer.ok());
    // containerd 1.7 does not report its runtimes.
    if (!Is17()) {
      EXPECT_THAT(answer->runtimes, Contains("nvidia"));
    }
    const auto dump = RunProgram({program_, "--config", options_.settings.config, "config", "dump"},
                                 std::chrono::seconds(20));
    ASSERT_TRUE(dump.ok());
    const auto document = ParseToml(dump->out);
    ASSERT_TRUE(document.ok());
    const char* const plugin =
        Is17() ? "io.containerd.grpc.v1.cri" : "io.containerd.cri.v1.runtime";
    const Json* const name =
        FindPath(*document, {"plugins", plugin, "containerd", "default_runtime_name"});
    ASSERT_NE(name, nullptr) << dump->out;
    EXPECT_EQ(name->string_value(), "nvidia");
    EXPECT_THAT(dump->out, HasSubstr("/opt/tessera/bin/tessera-runtime"));

    const auto again = Configure();
    ASSERT_TRUE(again.ok());
    EXPECT_FALSE(again->changed);
    EXPECT_EQ(Query()->pid, answer->pid) << "containerd was restarted without a change";

    const auto undone = Undo();
    ASSERT_TRUE(undone.ok()) << undone.status().ToString();
    EXPECT_EQ(ReadFile(options_.settings.config).value_or(""), config);
    EXPECT_EQ(*ListDir(Path("etc")), std::vector<std::string>{"config.toml"});
    EXPECT_THAT(Query()->runtimes, Not(Contains("nvidia")));
  }

  TempDir dir_;
  HostRoot host_{"/"};
  std::string program_;
  ConfigureOptions options_;
  std::optional<Supervisor> supervisor_;
};

INSTANTIATE_TEST_SUITE_P(Engines, ContainerdTest, ::testing::Values("2", "1.7"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST_P(ContainerdTest, AVersion3FileGetsADropInAndServesTheRuntime) {
  if (Is17()) GTEST_SKIP() << "containerd 1.7 does not know version 3";
  ExpectConfigures(Preamble("version = 3\n") + PrivatePlugins() +
                   "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n"
                   "  runtime_type = 'io.containerd.runc.v2'  # as ever\n"
                   "  options = { SystemdCgroup = false }\n");
}

TEST_P(ContainerdTest, AVersion2FileGetsADropInOfItsOwnVersion) {
  ExpectConfigures(Preamble("version = 2\n") + PrivatePlugins() +
                   "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
                   "  runtime_type = \"io.containerd.runc.v2\"\n");
}

TEST_P(ContainerdTest, AFileWithoutAVersionIsConfiguredToo) {
  if (Is17()) GTEST_SKIP() << "a file without a version is one of version 1 there";
  ExpectConfigures(Preamble("") + PrivatePlugins() + "[plugins.cri]\n");
}

TEST_P(ContainerdTest, ReportsAConfigurationThatContainerdRejectsBeforeWritingAnything) {
  Start(Preamble(OwnVersion()) + PrivatePlugins());
  const pid_t pid = Query()->pid;
  // This is valid TOML, but containerd cannot use it, and notices that only when it reads the file
  // again.
  const std::string broken = Preamble(OwnVersion()) + PrivatePlugins() +
                             "[timeouts]\n  \"io.containerd.timeout.task.state\" = 5\n";
  ASSERT_TRUE(WriteFileAtomically(options_.settings.config, broken, 0644).ok());
  const auto outcome = Configure();
  EXPECT_EQ(outcome.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(outcome.status().message(), HasSubstr("rejects the resulting configuration"));
  EXPECT_EQ(ReadFile(options_.settings.config).value_or(""), broken);
  EXPECT_EQ(*ListDir(Path("etc")), std::vector<std::string>{"config.toml"});
  EXPECT_EQ(Query()->pid, pid);
}

TEST_P(ContainerdTest, ReadsTheVersionFromTheSocket) {
  Start(Preamble(OwnVersion()) + PrivatePlugins());
  ASSERT_TRUE(Query()->version.has_value());
  EXPECT_GE(Query()->version->major, 1);
}

}  // namespace
}  // namespace tessera::engine
