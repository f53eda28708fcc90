// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/host_root.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/runtime/engine/install.h"

namespace tessera::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HostRootTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(MakeDirs(dir_.path() + "/etc/real").ok()); }
  std::string Raw(const std::string& path) { return ReadFile(dir_.path() + path).value_or("?"); }
  void Put(const std::string& path, std::string_view text) {
    ASSERT_TRUE(WriteFileAtomically(dir_.path() + path, text, 0640).ok());
  }

  TempDir dir_;
  HostRoot host_{dir_.path()};
};

TEST_F(HostRootTest, KeepsModeOwnerAndLink) {
  Put("/etc/real/config", "old");
  // An absolute link, relative to the host's root.
  ASSERT_EQ(::symlink("/etc/real/config", (dir_.path() + "/etc/config").c_str()), 0);
  auto state = host_.Read("/etc/config");
  ASSERT_TRUE(state.ok() && state->has_value());
  EXPECT_EQ((*state)->mode, 0640u);
  (*state)->text = "new";
  (*state)->gid = ::getuid() == 0 ? 7 : (*state)->gid;
  ASSERT_TRUE(host_.Write("/etc/config", **state).ok());
  EXPECT_EQ(Raw("/etc/real/config"), "new");
  EXPECT_EQ(*host_.Read("/etc/config"), *state);
  struct stat info {};
  ASSERT_EQ(::lstat((dir_.path() + "/etc/config").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  EXPECT_EQ(ListDir(dir_.path() + "/etc/real").value_or({}), std::vector<std::string>{"config"});
}

TEST_F(HostRootTest, LinkCannotLeadOutOfTheRoot) {
  Put("/etc/passwd", "inside");
  ASSERT_EQ(::symlink("../../../../../../../../etc/passwd", (dir_.path() + "/etc/config").c_str()),
            0);
  EXPECT_EQ((*host_.Read("/etc/config"))->text, "inside");
}

TEST_F(HostRootTest, APatternFollowsLinksBelowTheHostsRoot) {
  Put("/etc/real/b.toml", "");
  Put("/etc/real/a.toml", "");
  Put("/etc/real/a.json", "");
  Put("/etc/real/.hidden.toml", "");
  ASSERT_EQ(::symlink("/etc/real", (dir_.path() + "/etc/conf.d").c_str()), 0);
  ASSERT_EQ(::symlink("/nowhere", (dir_.path() + "/etc/real/c.toml").c_str()), 0);
  EXPECT_THAT(host_.Glob("/etc/conf.d/*.toml"),
              ElementsAre("/etc/conf.d/a.toml", "/etc/conf.d/b.toml", "/etc/conf.d/c.toml"));
  EXPECT_THAT(host_.Glob("/etc/*/a.toml"), ElementsAre("/etc/conf.d/a.toml", "/etc/real/a.toml"));
  EXPECT_THAT(host_.Glob("/etc/conf.d/a.toml"), ElementsAre("/etc/conf.d/a.toml"));
  EXPECT_THAT(host_.Glob("/etc/nothing/*"), IsEmpty());
}

// From the root of this process, the link would lead to a directory with matching files.
TEST_F(HostRootTest, APatternCannotLeadOutOfTheRoot) {
  ASSERT_EQ(::symlink("/proc/self", (dir_.path() + "/etc/out").c_str()), 0);
  EXPECT_THAT(host_.Glob("/etc/out/stat*"), IsEmpty());
}

TEST_F(HostRootTest, NamesADanglingLink) {
  ASSERT_EQ(::symlink("/nowhere/file", (dir_.path() + "/etc/config").c_str()), 0);
  const auto state = host_.Read("/etc/config");
  EXPECT_EQ(state.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(state.status().message(), HasSubstr("dangling"));
}

TEST_F(HostRootTest, RejectsDirsAndSpecialFiles) {
  EXPECT_THAT(host_.Read("/etc/real").status().message(), HasSubstr("is a directory"));
  ASSERT_EQ(::mkfifo((dir_.path() + "/etc/pipe").c_str(), 0600), 0);
  EXPECT_EQ(host_.Read("/etc/pipe").status().code(), Code::kFailedPrecondition);
}

TEST_F(HostRootTest, RejectsAHugeFile) {
  Put("/etc/config", "");
  ASSERT_EQ(::truncate((dir_.path() + "/etc/config").c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(host_.Read("/etc/config").status().code(), Code::kResourceExhausted);
}

TEST_F(HostRootTest, TemporaryFileOfAnInterruptedRunIsReplaced) {
  Put("/etc/.config.tessera-new", "half");
  ASSERT_TRUE(host_.Write("/etc/config", FileState{.text = "whole"}).ok());
  EXPECT_EQ(Raw("/etc/config"), "whole");
  EXPECT_FALSE(PathExists(dir_.path() + "/etc/.config.tessera-new"));
}

TEST_F(HostRootTest, InstallsAProgramOnce) {
  Put("/program", std::string(100000, 'x'));
  const auto first = InstallProgram(host_, dir_.path() + "/program", "/opt/t/bin/p");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_TRUE(*first);
  struct stat info {};
  ASSERT_EQ(::stat((dir_.path() + "/opt/t/bin/p").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  const auto second = InstallProgram(host_, dir_.path() + "/program", "/opt/t/bin/p");
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(*second);
}

TEST_F(HostRootTest, InstallsTheLimitersLibrariesBesideTheProgram) {
  const std::string program = dir_.path() + "/usr/bin/program";
  EXPECT_FALSE(InstallLibraries(host_, program, "/opt/t/bin/p").value()) << "there are none";
  ASSERT_TRUE(MakeDirs(dir_.path() + "/usr/lib").ok());
  Put("/usr/lib/libtessera-cuda-dev.so", "dev");
  Put("/usr/lib/libtessera-cuda-run.so", "run");
  Put("/usr/lib/libtessera-nvml-run.so", "nvml");
  EXPECT_TRUE(InstallLibraries(host_, program, "/opt/t/bin/p").value());
  EXPECT_EQ(Raw("/opt/t/lib/libtessera-cuda-dev.so"), "dev");
  EXPECT_EQ(Raw("/opt/t/lib/libtessera-cuda-run.so"), "run");
  EXPECT_EQ(Raw("/opt/t/lib/libtessera-nvml-run.so"), "nvml");
  EXPECT_FALSE(InstallLibraries(host_, program, "/opt/t/bin/p").value());
}

TEST_F(HostRootTest, SettingsKeepTheOperatorsTextAndComments) {
  Put("/etc/runtime.toml", "# mine\nlog = '/x'\ndriver-root = '/old' # why\n");
  RuntimeSettings settings;
  settings.driver_root = "/run/nvidia/driver";
  settings.runtimes = {"/usr/bin/crun", "runc"};
  ASSERT_TRUE(WriteRuntimeSettings(host_, "/etc/runtime.toml", settings).ok());
  EXPECT_EQ(Raw("/etc/runtime.toml"),
            "# mine\nlog = '/x'\ndriver-root = \"/run/nvidia/driver\" # why\n"
            "runtimes = [\"/usr/bin/crun\", \"runc\"]\n");
  EXPECT_FALSE(*WriteRuntimeSettings(host_, "/etc/runtime.toml", settings));
}

TEST_F(HostRootTest, DamagedSettingsAreKeptAsideAndReplaced) {
  Put("/etc/runtime.toml", "driver-root = '/old'\ngarbage = [");
  RuntimeSettings settings;
  settings.driver_root = "/run/nvidia/driver";
  EXPECT_TRUE(WriteRuntimeSettings(host_, "/etc/runtime.toml", settings).value());
  EXPECT_EQ(Raw("/etc/runtime.toml"),
            "# Settings of tessera-runtime.\ndriver-root = \"/run/nvidia/driver\"\n");
  EXPECT_EQ(Raw("/etc/runtime.toml.damaged"), "driver-root = '/old'\ngarbage = [");
}

TEST_F(HostRootTest, RunsTheHostsProgramsInTheHostsRoot) {
  if (::getuid() != 0) GTEST_SKIP() << "chroot needs root";
  const std::string program = ReadFile("/sbin/ldconfig").value_or("");
  if (program.empty()) GTEST_SKIP() << "no /sbin/ldconfig, a static program, on this machine";
  ASSERT_TRUE(MakeDirs(dir_.path() + "/sbin").ok());
  ASSERT_TRUE(MakeDirs(dir_.path() + "/dev").ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.path() + "/dev/null", "", 0666).ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.path() + "/sbin/ldconfig", program, 0755).ok());
  EXPECT_EQ(FindHostProgram(host_, "ldconfig"), "/sbin/ldconfig");
  EXPECT_EQ(FindHostProgram(host_, "containerd"), "");
  // ldconfig writes the cache into the root that it sees.
  const auto result = RunOnHost(host_, {"ldconfig", "-f", "/dev/null"}, std::chrono::seconds(10));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->exit_code, 0) << result->err;
  EXPECT_TRUE(PathExists(dir_.path() + "/etc/ld.so.cache"));
}

}  // namespace
}  // namespace tessera::engine
