// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/engine_watch.h"

#include <gtest/gtest.h>

#include <fstream>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

constexpr const char* kDiff =
    "--- /etc/containerd/config.toml\n+++ /etc/containerd/config.toml\n+x\n";

class EngineWatchTest : public ::testing::Test {
 protected:
  void Start(bool repair = false) {
    watch_.emplace(
        &runner_,
        EngineWatchOptions{.command = {"configure"}, .dirs = {dir_.path()}, .repair = repair},
        [this](std::vector<std::string> argv, ProgramDone done) {
          runs_.push_back(std::move(argv));
          runner_.Post([this, done = std::move(done)] {
            if (repair_succeeds_ && runs_.back().size() == 1) result_->out.clear();
            done(result_);
          });
        },
        &metrics_, [this](const std::string& problem) { problems_.push_back(problem); });
    watch_->Start();
    runner_.RunUntilIdle();
  }
  size_t Repairs() const {
    return static_cast<size_t>(
        std::count(runs_.begin(), runs_.end(), std::vector<std::string>{"configure"}));
  }

  TempDir dir_;
  FakeTaskRunner runner_;
  NodeMetrics metrics_;
  std::vector<std::vector<std::string>> runs_;
  std::vector<std::string> problems_;
  Result<SubprocessResult> result_ = SubprocessResult{.exit_code = 0};
  bool repair_succeeds_ = true;
  std::optional<EngineWatch> watch_;
};

TEST_F(EngineWatchTest, ACorrectConfigurationIsNoProblem) {
  Start();
  EXPECT_EQ(runs_, (std::vector<std::vector<std::string>>{{"configure", "--dry-run"}}));
  runner_.AdvanceTimeAndRun(EngineWatch::kInterval);
  EXPECT_EQ(runs_.size(), 2u);
  EXPECT_EQ(problems_, std::vector<std::string>{""}) << "the first check is reported, once";
}

TEST_F(EngineWatchTest, AnOverwrittenFileAndItsRestorationAreReportedWithinSeconds) {
  Start();
  result_->out = kDiff;
  std::ofstream(dir_.path() + "/config.toml") << "another";
  runner_.AdvanceTimeAndRun(EngineWatch::kDebounce);
  ASSERT_EQ(problems_.size(), 2u);
  EXPECT_TRUE(problems_[1].starts_with("/etc/containerd/config.toml lacks the settings"))
      << problems_[1];
  EXPECT_EQ(Repairs(), 0u) << "without --repair-engine nothing is repaired";
  result_->out.clear();
  std::ofstream(dir_.path() + "/config.toml", std::ios::app) << "as before";
  runner_.AdvanceTimeAndRun(EngineWatch::kDebounce);
  EXPECT_EQ(problems_.back(), "");
  EXPECT_EQ(metrics_.engine_checks.values().at("changed"), 1u);
}

TEST_F(EngineWatchTest, NamesAMissingFile) {
  result_->out = "--- /dev/null\n+++ /etc/containerd/conf.d/99-tessera.toml\n@@\n+--- x\n";
  Start();
  ASSERT_EQ(problems_.size(), 1u);
  EXPECT_TRUE(
      problems_[0].starts_with("/etc/containerd/conf.d/99-tessera.toml lacks the settings"));
}

TEST_F(EngineWatchTest, FindsAMissedChangeAtTheNextInterval) {
  Start();
  result_->out = kDiff;
  runner_.AdvanceTimeAndRun(EngineWatch::kInterval);
  EXPECT_EQ(problems_.size(), 2u);
  runner_.AdvanceTimeAndRun(EngineWatch::kInterval);
  EXPECT_EQ(problems_.size(), 2u) << "logged once";
}

TEST_F(EngineWatchTest, AFailedCheckLeavesTheEnginesStateUnknown) {
  result_ = SubprocessResult{.exit_code = 78, .err = "config.toml:3: not TOML"};
  Start();
  result_ = Status(Code::kNotFound, "no tessera-runtime");
  runner_.AdvanceTimeAndRun(EngineWatch::kInterval);
  EXPECT_TRUE(problems_.empty());
  EXPECT_EQ(metrics_.engine_checks.values().at("failed"), 2u);
}

TEST_F(EngineWatchTest, RepairsIfConfiguredAndChecksAgain) {
  result_->out = kDiff;
  Start(true);
  EXPECT_EQ(Repairs(), 1u);
  EXPECT_EQ(problems_.back(), "");
  EXPECT_EQ(metrics_.engine_repairs.values().at("OK"), 1u);
}

TEST_F(EngineWatchTest, TwoToolsThatDisagreeDoNotRestartTheEngineInTurns) {
  repair_succeeds_ = false;
  result_->out = kDiff;
  Start(true);
  for (int i = 0; i < 100; ++i) {
    std::ofstream(dir_.path() + "/config.toml") << i;
    runner_.AdvanceTimeAndRun(EngineWatch::kDebounce);
  }
  EXPECT_EQ(Repairs(), 1u);
  runner_.AdvanceTimeAndRun(EngineWatch::kRepairInterval);
  EXPECT_EQ(Repairs(), 2u);
}

}  // namespace
}  // namespace tessera::agent
