// SPDX-License-Identifier: Apache-2.0
#include "src/base/task_runner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <future>
#include <thread>
#include <vector>

#include "src/base/file.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(EpollTaskRunnerTest, RunsTasksInTheOrderOfPosting) {
  EpollTaskRunner runner;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) runner.Post([&order, i] { order.push_back(i); });
  runner.Post([&] { runner.Quit(); });
  runner.Run();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(EpollTaskRunnerTest, TasksThatWaitAtQuitRunInTheNextRun) {
  EpollTaskRunner runner;
  int runs = 0;
  runner.Post([&] { runner.Quit(); });
  runner.Post([&] {
    ++runs;
    runner.Quit();
  });
  runner.Run();
  EXPECT_EQ(runs, 0);
  runner.PostDelayed(seconds(30), [&] { runner.Quit(); });  // ends a run that has lost the task
  runner.Run();
  EXPECT_EQ(runs, 1);
}

TEST(EpollTaskRunnerTest, APostFromAnotherThreadWakesTheRunner) {
  EpollTaskRunner runner;
  bool on_runner = false;
  std::thread poster([&] {
    runner.Post([&] {
      on_runner = runner.RunsTasksOnCurrentThread();
      runner.Quit();
    });
  });
  runner.Run();
  poster.join();
  EXPECT_TRUE(on_runner);
}

TEST(EpollTaskRunnerTest, ACallbackMayUnwatchItsDescriptor) {
  EpollTaskRunner runner;
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  int calls = 0;
  runner.WatchReadable(read_end.get(), [&] {
    ++calls;
    runner.Unwatch(read_end.get());
    runner.Post([&] { runner.Quit(); });
  });
  ASSERT_EQ(::write(write_end.get(), "x", 1), 1);
  runner.Run();
  EXPECT_EQ(calls, 1);
}

TEST(FakeTaskRunnerTest, DelayedTasksSeeTheirDueTime) {
  FakeTaskRunner runner;
  std::vector<Duration> seen;
  const MonotonicTime start = runner.clock().Now();
  runner.PostDelayed(seconds(2), [&] { seen.push_back(runner.clock().Now() - start); });
  runner.PostDelayed(seconds(1), [&] { seen.push_back(runner.clock().Now() - start); });
  runner.RunUntilIdle();
  EXPECT_TRUE(seen.empty());
  runner.AdvanceTimeAndRun(seconds(5));
  EXPECT_EQ(seen, (std::vector<Duration>{seconds(1), seconds(2)}));
  EXPECT_EQ(runner.clock().Now() - start, seconds(5));
}

TEST(WorkerTest, TheDestructorWaitsForAllTasksInOrder) {
  std::vector<int> order;
  {
    Worker worker("test");
    worker.Post([&] { order.push_back(1); });
    worker.Post([&] { order.push_back(2); });
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(WorkerTest, AbandonDoesNotWaitForACallThatHangs) {
  auto release = std::make_shared<std::promise<void>>();
  auto entered = std::make_shared<std::promise<void>>();
  {
    Worker worker("test");
    worker.Post([release, entered] {
      entered->set_value();
      release->get_future().wait();
    });
    entered->get_future().wait();
    worker.Abandon();
  }
  release->set_value();
}

}  // namespace
}  // namespace tessera
