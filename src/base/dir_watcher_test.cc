// SPDX-License-Identifier: Apache-2.0
#include "src/base/dir_watcher.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "src/base/file.h"
#include "src/base/log.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The number of inotify instances that the process has open.
int CountInstances() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    count += std::filesystem::read_symlink(entry.path(), ignored) == "anon_inode:inotify" ? 1 : 0;
  }
  return count;
}

class DirWatcherTest : public ::testing::Test {
 protected:
  // A watcher that records its events in `log`, such as "appeared a"; with `reports_writes`, also
  // "written a".
  std::unique_ptr<DirWatcher> Watch(const std::string& dir, std::vector<std::string>* log,
                                    bool reports_writes = false) {
    const auto record = [log](const char* event) {
      return [log, event](const std::string& name) { log->push_back(event + name); };
    };
    DirWatcher::Events events{.on_appeared = record("appeared "),
                              .on_vanished = record("vanished "),
                              .on_rescan = [log] { log->push_back("rescan"); }};
    if (reports_writes) events.on_written = record("written ");
    auto watcher = std::make_unique<DirWatcher>(&runner_, dir, std::move(events));
    watcher->Start();
    return watcher;
  }
  void Write(const std::string& name) {
    std::ofstream(dir_.path() + "/" + name) << "x";
    runner_.RunUntilIdle();
  }

  FakeTaskRunner runner_;
  TempDir dir_;
  std::vector<std::string> first_, second_;
};

TEST_F(DirWatcherTest, WatchersOfOneRunnerShareAnInstance) {
  const int before = CountInstances();
  const auto first = Watch(dir_.path(), &first_);
  const auto second = Watch(dir_.path(), &second_, true);
  std::vector<std::string> other;
  const auto third = Watch("/tmp", &other);
  EXPECT_EQ(CountInstances(), before + 1);
  Write("a");
  EXPECT_THAT(first_, ElementsAre("rescan", "appeared a"));
  EXPECT_THAT(second_, ElementsAre("rescan", "appeared a", "written a"));
}

TEST_F(DirWatcherTest, ADestroyedWatcherDoesNotAffectTheOthers) {
  auto first = Watch(dir_.path(), &first_);
  auto second = Watch(dir_.path(), &second_);
  first.reset();
  first_.clear();
  Write("a");
  EXPECT_THAT(first_, IsEmpty());
  EXPECT_THAT(second_, ElementsAre("rescan", "appeared a"));
  const int open = CountInstances();
  second.reset();
  EXPECT_EQ(CountInstances(), open - 1);
}

TEST_F(DirWatcherTest, ACallbackMayDestroyAllWatchers) {
  std::vector<std::unique_ptr<DirWatcher>> watchers;
  watchers.push_back(std::make_unique<DirWatcher>(
      &runner_, dir_.path(),
      DirWatcher::Events{.on_appeared = [&](const std::string&) { watchers.clear(); },
                         .on_vanished = [](const std::string&) {},
                         .on_rescan = [] {}}));
  watchers.front()->Start();
  watchers.push_back(Watch(dir_.path(), &second_));
  Write("a");
  EXPECT_THAT(watchers, IsEmpty());
  EXPECT_THAT(second_, ElementsAre("rescan"));
}

TEST_F(DirWatcherTest, ADirectoryThatIsCreatedAgainIsWatchedByAll) {
  const std::string path = dir_.path() + "/below";
  ASSERT_TRUE(std::filesystem::create_directory(path));
  const auto first = Watch(path, &first_);
  const auto second = Watch(path, &second_);
  ASSERT_TRUE(std::filesystem::remove(path));
  runner_.RunUntilIdle();
  ASSERT_TRUE(std::filesystem::create_directory(path));
  runner_.AdvanceTimeAndRun(DirWatcher::kRetryInterval);
  Write("below/a");
  EXPECT_THAT(first_, ElementsAre("rescan", "rescan", "appeared a"));
  EXPECT_THAT(second_, ElementsAre("rescan", "rescan", "appeared a"));
}

// Runs in a child process, in a user namespace that forbids instances of inotify.
class WithoutInotifyTest : public DirWatcherTest {
 protected:
  static constexpr int kNotPermitted = 77;

  // Returns 0, or the line of the first expectation that is not met.
  int RunInChild() {
    if (::unshare(CLONE_NEWUSER) != 0) return kNotPermitted;
    std::ofstream limit("/proc/sys/user/max_inotify_instances");
    if (!(limit << "0" << std::flush)) return kNotPermitted;
    const ScopedLogSinkForTest sink([](std::string_view) {});
    const auto watcher = Watch(dir_.path(), &first_, true);
    const auto next = [&] {
      first_.clear();
      runner_.AdvanceTimeAndRun(DirWatcher::kRetryInterval);
      return first_;
    };
    using Events = std::vector<std::string>;
    if (first_ != Events{"rescan"}) return __LINE__;
    if (next() != Events{}) return __LINE__;
    Write("a");
    if (next() != Events{"appeared a"}) return __LINE__;
    Write("b");
    std::filesystem::rename(dir_.path() + "/b", dir_.path() + "/a");
    if (next() != Events{"vanished a", "appeared a"}) return __LINE__;
    std::filesystem::last_write_time(dir_.path() + "/a", std::filesystem::file_time_type{});
    if (next() != Events{"written a"}) return __LINE__;
    std::filesystem::remove(dir_.path() + "/a");
    if (next() != Events{"vanished a"}) return __LINE__;
    return 0;
  }
};

TEST_F(WithoutInotifyTest, TheDirectoryIsReadEverySecond) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(RunInChild() % 256);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotPermitted) GTEST_SKIP() << "user namespaces are not permitted";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the number of the line, modulo 256";
}

}  // namespace
}  // namespace tessera
