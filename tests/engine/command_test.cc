// SPDX-License-Identifier: Apache-2.0
// The command line in an init container whose image holds nothing but the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "src/base/file.h"
#include "src/base/subprocess.h"

namespace tessera::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* program = std::getenv("TESSERA_CONFIGURE");
    ASSERT_NE(program, nullptr) << "TESSERA_CONFIGURE does not name the program";
    program_ = program;
  }

  SubprocessResult Run(std::vector<std::string> argv) {
    argv.insert(argv.begin(), {program_, "--host-root", dir_.path()});
    auto result = RunProgram(argv, std::chrono::seconds(30));
    return result.ok() ? *result : SubprocessResult{-1, "", result.status().ToString()};
  }
  std::string Text(const std::string& path) {
    return ReadFile(dir_.path() + path).value_or("(no file)");
  }

  TempDir dir_;
  std::string program_;
};

TEST_F(CommandTest, InstallsItselfAndConfiguresAnEmptyHost) {
  const auto result = Run({"--engine", "containerd", "--set-as-default", "--install",
                           "--driver-root", "/run/nvidia/driver"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ReadFile(dir_.path() + "/opt/tessera/bin/tessera-runtime").value_or("a"),
            ReadFile(program_).value_or("b"));
  struct stat info {};
  ASSERT_EQ(::stat((dir_.path() + "/opt/tessera/bin/tessera-runtime").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  EXPECT_THAT(Text("/etc/tessera/runtime.toml"), HasSubstr("driver-root = \"/run/nvidia/driver\""));
  EXPECT_THAT(Text("/etc/containerd/config.toml"), HasSubstr("imports"));
  EXPECT_THAT(Text("/etc/containerd/conf.d/99-tessera.toml"),
              HasSubstr("default_runtime_name = \"nvidia\""));
  EXPECT_THAT(Run({"--engine=containerd", "--set-as-default", "--install"}).err,
              HasSubstr("nothing to change"));
  ASSERT_EQ(Run({"--engine=containerd", "--undo"}).exit_code, 0);
  EXPECT_FALSE(PathExists(dir_.path() + "/etc/containerd"));
  // Undo keeps the runtime's program, because running containers still need it.
  EXPECT_TRUE(PathExists(dir_.path() + "/opt/tessera/bin/tessera-runtime"));
}

TEST_F(CommandTest, TheParentRepeatsTheWorkOfAChildThatWasKilled) {
  const pid_t parent = ::fork();
  if (parent == 0) {
    const std::string root = "--host-root=" + dir_.path();
    // With such a long --spread, the child still waits when the test kills it.
    ::execl(program_.c_str(), program_.c_str(), root.c_str(), "--engine=containerd", "--install",
            "--set-as-default", "--spread=86400", nullptr);
    ::_exit(127);
  }
  int child = 0;
  const std::string children = fmt::format("/proc/{}/task/{}/children", parent, parent);
  for (int i = 0; i < 1000 && child == 0; ++i) {
    ::usleep(10'000);
    // The child writes this file when the runtime is installed, and then waits.
    if (PathExists(dir_.path() + "/etc/tessera/runtime.toml")) {
      child = std::atoi(ReadFile(children).value_or("").c_str());
    }
  }
  ASSERT_GT(child, 0);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(Text("/etc/containerd/conf.d/99-tessera.toml"),
              HasSubstr("default_runtime_name = \"nvidia\""));
}

TEST_F(CommandTest, UndoUnmountsTheTreesOfTheLastEngine) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "mounts need root";
  }
  const std::string trees = dir_.path() + "/run/tessera-runtime/trees";
  ASSERT_TRUE(MakeDirs(trees).ok());
  const auto mount = [](const std::string& at) {
    return ::mount("tessera", at.c_str(), "tmpfs", 0, "size=1m");
  };
  ASSERT_EQ(mount(trees), 0);
  ASSERT_TRUE(MakeDirs(trees + "/key").ok());
  ASSERT_EQ(mount(trees + "/key"), 0);
  for (const char* engine : {"--engine=docker", "--engine=crio"}) {
    ASSERT_EQ(Run({engine, "--install", "--restart-mode=none"}).exit_code, 0);
  }
  EXPECT_THAT(Run({"--engine=docker", "--undo", "--restart-mode=none"}).err,
              HasSubstr("/run/tessera-runtime/trees stays: /etc/crio/crio.conf"));
  EXPECT_TRUE(PathExists(trees + "/key"));
  EXPECT_EQ(Run({"--engine=crio", "--undo", "--dry-run"}).exit_code, 0);
  EXPECT_TRUE(PathExists(trees + "/key"));
  const auto last = Run({"--engine=crio", "--undo", "--restart-mode=none"});
  EXPECT_EQ(last.exit_code, 0);
  EXPECT_THAT(last.err, HasSubstr("/run/tessera-runtime/trees: 1 unmounted"));
  EXPECT_FALSE(PathExists(trees));
  EXPECT_THAT(ReadFile("/proc/self/mountinfo").value(), Not(HasSubstr(trees)));
}

TEST_F(CommandTest, AcceptsTheOptionNamesOfNvidiasToolkit) {
  const auto result = Run({"--runtime=docker", "--nvidia-runtime-name=gpu",
                           "--nvidia-runtime-path=nvidia-container-runtime",
                           "--nvidia-set-as-default", "--cdi.enabled", "--dry-run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("+    \"default-runtime\": \"gpu\""));
  EXPECT_THAT(result.out, HasSubstr("+            \"path\": \"nvidia-container-runtime\""));
  EXPECT_THAT(result.out, HasSubstr("\"cdi\": true"));
  EXPECT_FALSE(PathExists(dir_.path() + "/etc"));
}

TEST_F(CommandTest, RejectsAMissingRuntime) {
  const auto result = Run({"--engine=containerd"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("no container would start"));
  EXPECT_FALSE(PathExists(dir_.path() + "/etc"));
}

TEST_F(CommandTest, RejectsARuntimePathThatTheEngineCouldNotFollow) {
  for (const std::string engine : {"containerd", "crio", "docker"}) {
    const auto result = Run({"--engine=" + engine, "--runtime-path", "relative/path"});
    EXPECT_EQ(result.exit_code, 64) << engine << result.err;
    EXPECT_THAT(result.err, HasSubstr("not an absolute path")) << engine;
  }
  // Only Docker looks for a name without a path in $PATH.
  for (const std::string engine : {"containerd", "crio"}) {
    EXPECT_NE(Run({"--engine=" + engine, "--runtime-path=tessera-runtime", "--dry-run"}).exit_code,
              0);
  }
  EXPECT_NE(Run({"--engine=docker", "--runtime-path=tessera-runtime", "--install"}).exit_code, 0);
  EXPECT_NE(Run({"--engine=docker", "--runtime-path="}).exit_code, 0);
  EXPECT_FALSE(PathExists(dir_.path() + "/etc"));
}

TEST_F(CommandTest, AcceptsChoicesOnlyByTheirExactNames) {
  for (const char* engine : {"--engine=foo", "--engine=1", "--engine=Docker"}) {
    const auto result = Run({engine, "--dry-run"});
    EXPECT_NE(result.exit_code, 0) << engine;
    EXPECT_THAT(result.err, HasSubstr("is not one of containerd,docker,crio"));
  }
  EXPECT_THAT(Run({"--engine=docker", "--restart-mode=1"}).err,
              HasSubstr("is not one of none,signal,systemd,auto"));
}

TEST_F(CommandTest, RejectsWrongFlags) {
  EXPECT_NE(Run({"--engine=podman"}).exit_code, 0);
  EXPECT_NE(Run({}).exit_code, 0);
  EXPECT_NE(Run({"--engine=docker", "--undo", "--install"}).exit_code, 0);
  for (const char* other : {"--undo", "--install", "--dry-run"}) {
    EXPECT_NE(Run({"--engine=docker", "--guard", other}).exit_code, 0) << other;
  }
  EXPECT_THAT(Run({"--engine=docker", "--undo", "--config=daemon.json"}).err,
              HasSubstr("absolute"));
  EXPECT_EQ(Run({"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace tessera::engine
