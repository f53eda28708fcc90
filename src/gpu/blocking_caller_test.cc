// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/blocking_caller.h"

#include <gtest/gtest.h>

#include <future>

namespace tessera::gpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Real threads and real time. Deadlines are a few milliseconds if the job must be overdue, and a
// minute otherwise.
class ThreadCallerTest : public ::testing::Test {
 protected:
  BlockingCaller::Job JobThatQuits(Duration deadline, std::function<void()> work) {
    return {.name = "test-job",
            .deadline = deadline,
            .work = std::move(work),
            .on_finished = [this] { ++finished_, runner_.Quit(); },
            .on_overdue = [this] { ++overdue_, runner_.Quit(); }};
  }

  EpollTaskRunner runner_;
  int finished_ = 0;
  int overdue_ = 0;
};

TEST_F(ThreadCallerTest, RunsWorkElsewhereAndFinishesOnTheRunner) {
  ThreadCaller caller(&runner_);
  bool elsewhere = false;
  caller.Start(JobThatQuits(seconds(60), [&] { elsewhere = !runner_.RunsTasksOnCurrentThread(); }));
  runner_.Run();
  EXPECT_TRUE(elsewhere);
  EXPECT_EQ(finished_, 1);
  EXPECT_EQ(overdue_, 0);
}

TEST_F(ThreadCallerTest, AJobThatHangsIsOverdueAndFinishesLate) {
  ThreadCaller caller(&runner_);
  std::promise<void> release;
  caller.Start(
      JobThatQuits(milliseconds(5), [wait = release.get_future().share()] { wait.get(); }));
  runner_.Run();
  EXPECT_EQ(overdue_, 1);
  EXPECT_EQ(caller.stuck(), 1);
  release.set_value();
  runner_.Run();
  EXPECT_EQ(finished_, 1);
  EXPECT_EQ(caller.stuck(), 0);
}

TEST_F(ThreadCallerTest, AJobThatHangsDoesNotDelayOthers) {
  ThreadCaller caller(&runner_);
  std::promise<void> release;
  caller.Start({.name = "hangs",
                .deadline = seconds(60),
                .work = [wait = release.get_future().share()] { wait.get(); },
                .on_finished = [] {},
                .on_overdue = [] {}});
  caller.Start(JobThatQuits(seconds(60), [] {}));
  runner_.Run();
  EXPECT_EQ(finished_, 1);
  release.set_value();
}

TEST_F(ThreadCallerTest, TheDestructorDropsTheCallbacksOfRunningJobs) {
  std::promise<void> release;
  {
    ThreadCaller caller(&runner_);
    caller.Start(JobThatQuits(seconds(60), [wait = release.get_future().share()] { wait.get(); }));
  }
  release.set_value();
  ThreadCaller other(&runner_);
  other.Start({.name = "last",
               .deadline = seconds(60),
               .work = [] {},
               .on_finished = [this] { runner_.Quit(); },
               .on_overdue = [] {}});
  runner_.Run();
  EXPECT_EQ(finished_ + overdue_, 0);
}

TEST_F(ThreadCallerTest, AnAnswerIsDroppedIfTheCallerIsDestroyedFirst) {
  std::promise<void> release;
  auto caller = std::make_unique<ThreadCaller>(&runner_);
  // Keeps the caller's state alive after the caller is destroyed.
  caller->Start(JobThatQuits(seconds(60), [wait = release.get_future().share()] { wait.get(); }));
  std::promise<void> answered;
  caller->Start(JobThatQuits(seconds(60), [] {}));
  caller->Start({.name = "last",
                 .deadline = seconds(60),
                 .work = [&] { answered.set_value(); },
                 .on_finished = [] {},
                 .on_overdue = [] {}});
  answered.get_future().wait();
  runner_.Post([&] { caller.reset(); });
  runner_.PostDelayed(milliseconds(20), [this] { runner_.Quit(); });
  runner_.Run();
  release.set_value();
}

}  // namespace
}  // namespace tessera::gpu
