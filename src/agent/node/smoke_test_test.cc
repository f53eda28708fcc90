// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/smoke_test.h"

#include <gtest/gtest.h>

#include <fstream>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;
using State = SmokeVerdict::State;

std::shared_ptr<const device::NodeInventory> SmokeGpus(int healthy, int unhealthy = 0) {
  auto inventory = std::make_shared<device::NodeInventory>();
  for (int i = 0; i < healthy + unhealthy; ++i) {
    inventory->gpus.push_back({.uuid = "GPU-" + std::to_string(i), .index = i, .minor = i});
    if (i >= healthy) inventory->gpus.back().health = device::Health::Unhealthy("XID 79");
  }
  return inventory;
}

SmokeFacts AllGood() {
  return {.inventory = SmokeGpus(2),
          .device_problems = std::vector<std::string>{},
          .expects_kubelet = true,
          .registered = true,
          .expects_engine = true,
          .engine_problem = ""};
}

TEST(JudgeSmokeTest, EveryStepMustPass) {
  EXPECT_EQ(JudgeSmokeTest(AllGood()).state, State::kPassed);

  SmokeFacts facts = AllGood();
  facts.inventory = nullptr;
  EXPECT_EQ(JudgeSmokeTest(facts).state, State::kWaiting);

  auto broken = std::make_shared<device::NodeInventory>();
  broken->problem = "no driver here";
  facts.inventory = broken;
  EXPECT_EQ(JudgeSmokeTest(facts), (SmokeVerdict{State::kFailed, "no driver here"}));

  facts = AllGood();
  facts.driver_problem = "libcuda is missing";
  EXPECT_EQ(JudgeSmokeTest(facts), (SmokeVerdict{State::kFailed, "libcuda is missing"}));

  facts = AllGood();
  facts.inventory = SmokeGpus(0, 2);
  EXPECT_EQ(JudgeSmokeTest(facts).state, State::kFailed);

  facts = AllGood();
  facts.device_problems = {"/dev/nvidia1 is missing"};
  EXPECT_EQ(JudgeSmokeTest(facts), (SmokeVerdict{State::kFailed, "/dev/nvidia1 is missing"}));

  facts = AllGood();
  facts.registered = false;
  EXPECT_EQ(JudgeSmokeTest(facts).state, State::kWaiting);
  facts.expects_kubelet = false;
  EXPECT_EQ(JudgeSmokeTest(facts).state, State::kPassed);

  facts = AllGood();
  facts.engine_problem.reset();
  EXPECT_EQ(JudgeSmokeTest(facts).state, State::kWaiting);
  facts.engine_problem = "config.toml was changed";
  EXPECT_EQ(JudgeSmokeTest(facts).state, State::kFailed);
  facts.expects_engine = false;
  EXPECT_EQ(JudgeSmokeTest(facts).state, State::kPassed);
}

TEST(JudgeSmokeTest, AnUnhealthyGpuBesideHealthyGpusDoesNotFailTheTest) {
  SmokeFacts facts = AllGood();
  facts.inventory = SmokeGpus(1, 7);
  EXPECT_EQ(JudgeSmokeTest(facts).state, State::kPassed);
}

TEST(OpenDeviceNodesTest, NamesEachNodeThatIsMissing) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir.path() + "/dev").ok());
  for (const char* name : {"nvidiactl", "nvidia-uvm", "nvidia0"}) {
    std::ofstream(dir.path() + "/dev/" + name) << "";
  }
  EXPECT_TRUE(OpenDeviceNodes(dir.path(), {0}, false).empty());
  const auto problems = OpenDeviceNodes(dir.path(), {0, 3}, false);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_TRUE(problems[0].starts_with(dir.path() + "/dev/nvidia3 is missing")) << problems[0];
}

TEST(OpenDeviceNodesTest, ANodeThatCannotBeOpenedFailsUnlessTheDriverIsSimulated) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir.path() + "/dev/nvidia0").ok());  // a directory cannot be written
  for (const char* name : {"nvidiactl", "nvidia-uvm"}) {
    std::ofstream(dir.path() + "/dev/" + name) << "";
  }
  EXPECT_EQ(OpenDeviceNodes(dir.path(), {0}, false).size(), 1u);
  EXPECT_TRUE(OpenDeviceNodes(dir.path(), {0}, true).empty());
}

class SmokeTestTest : public ::testing::Test {
 protected:
  void Start(bool kubelet, bool engine) {
    test_.emplace(
        &runner_, kubelet, engine,
        [this](const std::vector<int>& minors, std::function<void(SmokeTest::Problems)> done) {
          examined_.push_back(minors);
          if (hangs_) {
            hanging_.push_back(std::move(done));
            return;
          }
          runner_.Post([this, done = std::move(done)] { done(problems_); });
        },
        [this](const SmokeVerdict& verdict) { verdicts_.push_back(verdict); });
  }
  void SetGpus(int healthy, int unhealthy = 0) {
    test_->SetInventory(SmokeGpus(healthy, unhealthy));
    runner_.RunUntilIdle();
  }

  FakeTaskRunner runner_;
  bool hangs_ = false;
  std::vector<std::function<void(SmokeTest::Problems)>> hanging_;  // examinations without an answer
  SmokeTest::Problems problems_;
  std::vector<std::vector<int>> examined_;
  std::vector<SmokeVerdict> verdicts_;
  std::optional<SmokeTest> test_;
};

TEST_F(SmokeTestTest, PassesWhenTheLastStepHasPassed) {
  Start(true, true);
  SetGpus(2);
  test_->SetEngineProblem("");
  EXPECT_EQ(test_->verdict().state, State::kWaiting);
  test_->SetRegistered(true);
  EXPECT_EQ(test_->verdict().state, State::kPassed);
}

TEST_F(SmokeTestTest, AMissingKubeletFailsTheTestOnlyAfterTheGracePeriod) {
  Start(true, false);
  SetGpus(2);
  test_->SetRegistered(true);
  runner_.AdvanceTimeAndRun(1h);
  test_->SetRegistered(false);
  runner_.AdvanceTimeAndRun(SmokeTest::kGrace - 1s);
  EXPECT_EQ(test_->verdict().state, State::kWaiting);
  test_->SetRegistered(true);
  EXPECT_EQ(test_->verdict().state, State::kPassed);
  test_->SetRegistered(false);
  runner_.AdvanceTimeAndRun(SmokeTest::kGrace);
  EXPECT_EQ(test_->verdict().state, State::kFailed);
  EXPECT_NE(test_->verdict().problem.find("kubelet"), std::string::npos);
}

TEST_F(SmokeTestTest, DevicesAreExaminedUntilTheyOpenAndAgainWhenTheyChange) {
  Start(false, false);
  problems_ = {"/dev/nvidia0 is missing"};
  SetGpus(1);
  EXPECT_EQ(test_->verdict().state, State::kFailed);
  problems_.clear();
  runner_.AdvanceTimeAndRun(SmokeTest::kDeviceRetry);
  EXPECT_EQ(test_->verdict().state, State::kPassed);
  SetGpus(1);
  runner_.AdvanceTimeAndRun(1h);
  EXPECT_EQ(examined_.size(), 2u);
  SetGpus(2, 1);
  EXPECT_EQ(examined_.back(), (std::vector<int>{0, 1})) << "the unhealthy GPU is left out";
}

TEST_F(SmokeTestTest, AGpuWhoseOpenHangsFailsTheTest) {
  Start(false, false);
  hangs_ = true;
  SetGpus(1);
  runner_.AdvanceTimeAndRun(SmokeTest::kGrace);
  EXPECT_EQ(test_->verdict().state, State::kFailed);
  EXPECT_NE(test_->verdict().problem.find("hang"), std::string::npos);
}

TEST_F(SmokeTestTest, ANewInventoryDoesNotRestartARunningExamination) {
  Start(false, false);
  hangs_ = true;
  SetGpus(2);
  SetGpus(2);
  ASSERT_EQ(hanging_.size(), 1u);
  hanging_[0]({});
  EXPECT_EQ(test_->verdict().state, State::kPassed);
}

TEST_F(SmokeTestTest, AnExaminationThatHangsDoesNotBlockTheNextOne) {
  Start(false, false);
  hangs_ = true;
  SetGpus(2);
  hangs_ = false;
  SetGpus(1, 1);
  EXPECT_EQ(test_->verdict().state, State::kPassed) << "the GPU that hangs is unhealthy now";
  hanging_[0]({"/dev/nvidia1 cannot be opened"});
  EXPECT_EQ(test_->verdict().state, State::kPassed) << "the late result is dropped";
}

TEST_F(SmokeTestTest, AGpuThatBecomesUnhealthyDoesNotRestartATestThatHasPassed) {
  Start(false, false);
  SetGpus(2);
  ASSERT_EQ(test_->verdict().state, State::kPassed);
  const size_t verdicts = verdicts_.size();
  SetGpus(1, 1);
  EXPECT_EQ(examined_.size(), 1u);
  EXPECT_EQ(verdicts_.size(), verdicts);
  SetGpus(2);
  EXPECT_EQ(examined_.size(), 2u) << "the GPU that is healthy again is examined";
}

}  // namespace
}  // namespace tessera::agent
