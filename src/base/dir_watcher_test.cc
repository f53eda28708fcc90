// SPDX-License-Identifier: Apache-2.0
#include "src/base/dir_watcher.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "src/base/file.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The instances of inotify that the process has.
int Instances() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:inotify" ? 1 : 0;
  }
  return count;
}

class DirWatcherTest : public ::testing::Test {
 protected:
  // A watcher that records its events in `log`, such as "appeared a".
  std::unique_ptr<DirWatcher> Watch(const std::string& dir, std::vector<std::string>* log,
                                    bool writes = false) {
    const auto record = [log](const char* what) {
      return [log, what](const std::string& name) { log->push_back(what + name); };
    };
    DirWatcher::Events events{.on_appeared = record("appeared "),
                              .on_vanished = record("vanished "),
                              .on_rescan = [log] { log->push_back("rescan"); }};
    if (writes) events.on_written = record("written ");
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
  const int before = Instances();
  const auto first = Watch(dir_.path(), &first_);
  const auto second = Watch(dir_.path(), &second_, true);
  std::vector<std::string> other;
  const auto third = Watch("/tmp", &other);
  EXPECT_EQ(Instances(), before + 1);
  Write("a");
  EXPECT_THAT(first_, ElementsAre("rescan", "appeared a"));
  EXPECT_THAT(second_, ElementsAre("rescan", "appeared a", "written a"));
}

TEST_F(DirWatcherTest, AnEndedWatcherLeavesTheOthers) {
  auto first = Watch(dir_.path(), &first_);
  auto second = Watch(dir_.path(), &second_);
  first.reset();
  first_.clear();
  Write("a");
  EXPECT_THAT(first_, IsEmpty());
  EXPECT_THAT(second_, ElementsAre("rescan", "appeared a"));
  const int open = Instances();
  second.reset();
  EXPECT_EQ(Instances(), open - 1);
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

}  // namespace
}  // namespace tessera
