// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/container_region.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "src/agent/limits/testing/usage_test_file.h"
#include "src/limiter/limits_file.h"

namespace tessera::agent {
namespace {

namespace fs = std::filesystem;

constexpr char kUuid[] = "GPU-00112233-4455-6677-8899-aabbccddeeff";

bool Mount(const std::string& source, const std::string& target, const char* type, int flags) {
  return ::mount(source.c_str(), target.c_str(), type, static_cast<unsigned long>(flags),
                 nullptr) == 0;
}

// A real process in a mount namespace of its own, where the limiter's files are mounted as
// tessera-runtime mounts them. Needs root.
class ContainerRegionTest : public ::testing::Test {
 protected:
  ContainerRegionTest() {
    fs::create_directories(temp_.path() + "/host");
    limiter::LimitsFile limits;
    EXPECT_EQ(limits.Open(limits_.c_str()), 0);
    EXPECT_EQ(limits.SetMemory(kUuid, 1 << 30), 0);
  }
  ~ContainerRegionTest() override { End(); }

  // `prepare` runs in the process once its mounts are there. False: the test may not mount.
  bool Start(const std::function<void()>& prepare) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string tessera = "/run/tessera";
      const bool mounted =
          ::unshare(CLONE_NEWNS) == 0 && Mount("", "/", nullptr, MS_REC | MS_PRIVATE) &&
          Mount(temp_.path(), "/mnt", nullptr, MS_BIND) && Mount("tmpfs", "/run", "tmpfs", 0);
      if (!mounted) ::_exit(1);
      fs::create_directories(tessera + "/limits");
      fs::create_directories(tessera + "/usage");
      if (!Mount("/mnt/host", tessera + "/limits", nullptr, MS_BIND) ||
          !Mount("tmpfs", tessera + "/usage", "tmpfs", 0)) {
        ::_exit(1);
      }
      prepare();
      (void)!::write(ready[1], "r", 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    const bool started = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    return started;
  }
  void End() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  TempDir temp_;
  const std::string limits_ = temp_.path() + "/host/limits";
  pid_t pid_ = 0;
};

TEST_F(ContainerRegionTest, ReadsTheFileOfAProcessInAnotherMountNamespace) {
  const bool started = Start([] {
    auto* file = new UsageTestFile("/run/tessera/usage/usage");
    file->Hold(3, 77);
  });
  if (!started) GTEST_SKIP() << "this process may not mount";
  auto region = ContainerRegion::Open(limits_);
  ASSERT_TRUE(region.ok()) << region.status().ToString();
  EXPECT_EQ((*region)->Read().status().code(), Code::kNotFound);
  auto found = FindContainer(limits_, {{::getpid(), "self"}, {pid_, "aa"}}, {});
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->container_id, "aa") << "this process does not see the container's limits";
  (*region)->SetFound(*std::move(found));
  const auto read = (*region)->Read();
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->size(), 1u) << "a reading for each limited GPU";
  EXPECT_EQ(read->front().held, Bytes(77));
  EXPECT_EQ(read->front().processes, 1);
  // After the end of the last process, one reading still succeeds, without the memory that it held.
  End();
  EXPECT_EQ((*region)->Read()->front().held, Bytes(0));
  EXPECT_FALSE((*region)->found());
}

TEST_F(ContainerRegionTest, ReadsARecreatedFile) {
  const bool started = Start([] {
    auto* file = new UsageTestFile("/run/tessera/usage/usage");
    file->Hold(0, 1);
    ::signal(SIGUSR1, [](int) {
      ::unlink("/run/tessera/usage/usage");
      (new UsageTestFile("/run/tessera/usage/usage"))->Hold(0, 2);
      ::_exit(::open("/run/tessera/usage/done", O_CREAT | O_WRONLY, 0600) < 0);
    });
  });
  if (!started) GTEST_SKIP() << "this process may not mount";
  auto region = ContainerRegion::Open(limits_).value();
  region->SetFound(FindContainer(limits_, {{pid_, "aa"}}, {}).value());
  EXPECT_EQ(region->Read()->front().held, Bytes(1));
  ::kill(pid_, SIGUSR1);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
  const auto before = region->usage();
  EXPECT_TRUE(region->Read().ok());
  EXPECT_NE(before, region->usage());
}

TEST_F(ContainerRegionTest, AFolderThatIsNoTmpfsIsNotOpened) {
  const bool started = Start([] {
    ::umount("/run/tessera/usage");
    fs::create_directories("/mnt/elsewhere");
    (void)Mount("/mnt/elsewhere", "/run/tessera/usage", nullptr, MS_BIND);
  });
  if (!started) GTEST_SKIP() << "this process may not mount";
  struct statfs info {};
  if (::statfs(temp_.path().c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC) {
    GTEST_SKIP() << "the folder for temporary files is a tmpfs";
  }
  EXPECT_EQ(FindContainer(limits_, {{pid_, "aa"}}, {}).status().code(), Code::kNotFound);
}

TEST_F(ContainerRegionTest, AFileUnderAnotherMountIsHidden) {
  const bool started = Start([] {
    ::signal(SIGUSR1, [](int) {
      (void)Mount("tmpfs", "/run/tessera/limits", "tmpfs", 0);
      (void)!::open("/run/tessera/usage/done", O_CREAT | O_WRONLY, 0600);
    });
  });
  if (!started) GTEST_SKIP() << "this process may not mount";
  EXPECT_EQ(VisibilityOf(limits_, pid_, {}), LimitsVisibility::kVisible);
  ::kill(pid_, SIGUSR1);
  const std::string done = fmt::format("/proc/{}/root/run/tessera/usage/done", pid_);
  for (int i = 0; i < 1000 && !fs::exists(done); ++i) ::usleep(10000);
  EXPECT_EQ(VisibilityOf(limits_, pid_, {}), LimitsVisibility::kHidden);
  End();
  EXPECT_EQ(VisibilityOf(limits_, pid_, {}), LimitsVisibility::kUnknown) << "the process has ended";
}

TEST_F(ContainerRegionTest, ExaminesAProcessWhoseFirstThreadHasEnded) {
  const bool started = Start([] {
    std::thread([] {
      for (;;) ::pause();
    }).detach();
    ::signal(SIGUSR1, [](int) { ::syscall(SYS_exit, 0); });
  });
  if (!started) GTEST_SKIP() << "this process may not mount";
  ASSERT_EQ(::syscall(SYS_tgkill, pid_, pid_, SIGUSR1), 0);
  const std::string root = fmt::format("/proc/{}/root/", pid_);
  for (int i = 0; i < 1000 && ::access(root.c_str(), F_OK) == 0; ++i) ::usleep(10000);
  EXPECT_NE(::access(root.c_str(), F_OK), 0);
  EXPECT_EQ(VisibilityOf(limits_, pid_, {}), LimitsVisibility::kVisible);
  EXPECT_TRUE(FindContainer(limits_, {{pid_, "aa"}}, {}).ok());
}

TEST_F(ContainerRegionTest, ADirectoryRecreatedOnTheHostIsNotHidden) {
  if (!Start([] {})) GTEST_SKIP() << "this process may not mount";
  fs::remove_all(temp_.path() + "/host");
  fs::create_directories(temp_.path() + "/host");
  limiter::LimitsFile limits;
  ASSERT_EQ(limits.Open(limits_.c_str()), 0);
  struct stat info {};
  const std::string seen = fmt::format("/proc/{}/root/run/tessera/limits", pid_);
  if (::stat(seen.c_str(), &info) != 0 || info.st_nlink != 0) {
    GTEST_SKIP() << "the file system counts no links of folders";
  }
  EXPECT_EQ(VisibilityOf(limits_, pid_, {}), LimitsVisibility::kUnknown);
}

}  // namespace
}  // namespace tessera::agent
