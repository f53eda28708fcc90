// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/options.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/runtime/runtime.h"

namespace tessera::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Options, MissingFileGivesDefaults) {
  const Options options = LoadOptions("/no/such/runtime.toml").value();
  EXPECT_THAT(options.runtimes, ElementsAre("runc", "crun"));
  EXPECT_EQ(options.driver_root, "/");
  EXPECT_TRUE(options.accept_visible_devices_envvar);
}

TEST(Options, ReadsEveryKey) {
  const Options options = ParseOptions(R"(
runtimes = ["/opt/crun"]
driver-root = "/run/nvidia/driver"
dev-root = "/run/nvidia"
driver-tree-dir = "/run/trees"
grant-socket = "/run/x.sock"
grant-timeout-seconds = 3
log = "/var/log/x.log"
accept-visible-devices-envvar = false
privileged-namespaces = ["gpu-operator"]
)",
                                       "f")
                              .value();
  EXPECT_THAT(options.runtimes, ElementsAre("/opt/crun"));
  EXPECT_EQ(options.driver_root, "/run/nvidia/driver");
  EXPECT_EQ(options.dev_root, "/run/nvidia");
  EXPECT_EQ(options.driver_tree_dir, "/run/trees");
  EXPECT_EQ(options.grant_socket, "/run/x.sock");
  EXPECT_EQ(options.grant_timeout, std::chrono::seconds(3));
  EXPECT_EQ(options.log, "/var/log/x.log");
  EXPECT_FALSE(options.accept_visible_devices_envvar);
  EXPECT_THAT(options.privileged_namespaces, ElementsAre("gpu-operator"));
}

TEST(Options, EmptyDriverTreeDirDisablesTrees) {
  EXPECT_EQ(ParseOptions("", "f")->driver_tree_dir, "/run/tessera-runtime");
  EXPECT_EQ(ParseOptions("driver-tree-dir = \"\"\n", "f")->driver_tree_dir, "");
  EXPECT_FALSE(ParseOptions("driver-tree-dir = 3\n", "f").ok());
}

TEST(Options, ErrorsNameFileAndLine) {
  const auto message = [](const std::string& text) {
    return ParseOptions(text, "/etc/x.toml").status().message();
  };
  EXPECT_THAT(message("\nruntimes = \"runc\"\n"), HasSubstr("/etc/x.toml:2: \"runtimes\""));
  EXPECT_THAT(message("runtimes = []\n"), HasSubstr("\"runtimes\" must be a list"));
  EXPECT_THAT(message("privileged-namespaces = \"x\""), HasSubstr("a list of namespaces"));
  EXPECT_THAT(message("\nprivileged-namespaces = [\"a\", 3]"), HasSubstr("/etc/x.toml:2"));
  EXPECT_TRUE(ParseOptions("privileged-namespaces = []", "f")->privileged_namespaces.empty());
  EXPECT_THAT(message("driver_root = \"/\"\n"),
              HasSubstr("/etc/x.toml:1: unknown key \"driver_root\""));
  EXPECT_THAT(message("\n\nlog = [\n"), HasSubstr("/etc/x.toml:"));
  EXPECT_THAT(message("dev-root = \"relative\""), HasSubstr("absolute path"));
  EXPECT_THAT(message("grant-timeout-seconds = -1"), HasSubstr("from 0 to 600"));
}

class LowLevel : public ::testing::Test {
 protected:
  std::string MakeProgram(const std::string& name, mode_t mode = 0755) {
    const std::string path = JoinPath(dir_.path(), name);
    EXPECT_TRUE(MakeDirs(DirName(path)).ok());
    EXPECT_TRUE(WriteFileAtomically(path, "#!/bin/sh\n", mode).ok());
    return path;
  }
  TempDir dir_;
};

TEST_F(LowLevel, TakesTheFirstThatExists) {
  const std::string second = MakeProgram("b/tessera-fake-crun");
  const std::string path = dir_.path() + "/a:" + dir_.path() + "/b";
  EXPECT_EQ(FindLowLevelRuntime({"tessera-fake-runc", "tessera-fake-crun"}, path.c_str()).value(),
            second);
  EXPECT_EQ(FindLowLevelRuntime({second}, nullptr).value(), second);
}

TEST_F(LowLevel, NeverChoosesItselfAsTheLowLevelRuntime) {
  const std::string link = JoinPath(dir_.path(), "tessera-fake-runc");
  ASSERT_EQ(::symlink("/proc/self/exe", link.c_str()), 0);
  const auto found = FindLowLevelRuntime({"tessera-fake-runc", link}, dir_.path().c_str());
  EXPECT_EQ(found.status().code(), Code::kNotFound);
  EXPECT_THAT(found.status().message(), HasSubstr("install runc or crun"));
}

TEST_F(LowLevel, SkipsFilesThatCannotRunAndTheWorkingDir) {
  MakeProgram("tessera-fake-runc", 0644);
  EXPECT_FALSE(FindLowLevelRuntime({"tessera-fake-runc"}, dir_.path().c_str()).ok());
  MakeProgram("tessera-fake-crun");
  ASSERT_TRUE(FindLowLevelRuntime({"tessera-fake-crun"}, dir_.path().c_str()).ok());
  const Fd earlier_dir(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::chdir(dir_.path().c_str()), 0);
  for (const char* path : {".", "", ":"}) {
    EXPECT_FALSE(FindLowLevelRuntime({"tessera-fake-crun"}, path).ok()) << path;
  }
  ASSERT_EQ(::fchdir(earlier_dir.get()), 0);
}

}  // namespace
}  // namespace tessera::runtime
