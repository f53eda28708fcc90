// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_report.h"

#include <gtest/gtest.h>

#include <utility>

namespace tessera::agent {
namespace {

// Keeps the last condition that was written.
class ConditionApi final : public NodeApi {
 public:
  ConditionApi(TaskRunner* runner, int* gets, std::string* condition)
      : runner_(runner), gets_(gets), condition_(condition) {}

  void Get(Done done) override {
    ++*gets_;
    Answer(std::move(done));
  }
  void MergePatch(const Json&, Done done) override { Answer(std::move(done)); }
  void PatchStatus(const Json& patch, Done done) override {
    const Json& condition = patch.Find("status")->Find("conditions")->items().at(0);
    *condition_ = *condition.StringAt("reason") + ": " + *condition.StringAt("message");
    Answer(std::move(done));
  }
  void JsonPatch(const Json&, Done done) override { Answer(std::move(done)); }
  void CreateEvent(const Json&, Done done) override { Answer(std::move(done)); }

 private:
  void Answer(Done done) {
    runner_->Post([done = std::move(done)] { done(*ParseJson(R"({"metadata":{"name":"n"}})")); });
  }

  TaskRunner* const runner_;
  int* const gets_;
  std::string* const condition_;
};

class NodeReportTest : public ::testing::Test {
 protected:
  NodeReportTest() {
    inventory_.gpus.push_back({.uuid = "GPU-0", .minor = 0, .model = "NVIDIA A100"});
    inventory_.links = device::LinkMatrix(1);
  }
  void Start() {
    report_.Start(std::make_unique<ConditionApi>(&runner_, &gets_, &condition_), {});
    runner_.RunUntilIdle();
  }
  bool ConditionHas(const std::string& text) const {
    return condition_.find(text) != std::string::npos;
  }

  FakeTaskRunner runner_;
  NodeMetrics metrics_;
  device::NodeInventory inventory_;
  bool known_ = true;
  int gets_ = 0;
  std::string condition_;
  NodeReporter report_{
      &runner_,
      &metrics_,
      {.inventory = [this] { return known_ ? std::optional(inventory_) : std::nullopt; },
       .findings = [] { return NodeFindings(); },
       .hardware = [] { return NodeHardware(); },
       .on_node = [](const Json&) {}}};
};

TEST_F(NodeReportTest, NothingIsPublishedBeforeTheGpusAreKnown) {
  known_ = false;
  Start();
  EXPECT_EQ(gets_, 0);
  known_ = true;
  report_.Publish();
  runner_.RunUntilIdle();
  EXPECT_TRUE(ConditionHas("GPUsHealthy")) << condition_;
}

TEST_F(NodeReportTest, AnEngineProblemIsReportedInsteadOfContainersWithoutGpus) {
  Start();
  report_.SetContainersWithoutGpus({"default/a/main", "default/b/main"});
  runner_.RunUntilIdle();
  EXPECT_TRUE(ConditionHas("2 containers run without their GPUs")) << condition_;
  EXPECT_TRUE(ConditionHas("default/a/main and others")) << condition_;
  report_.SetEngineProblem("the engine has another configuration");
  report_.Publish();
  runner_.RunUntilIdle();
  EXPECT_TRUE(ConditionHas("RuntimeNotConfigured: the engine has another")) << condition_;
  report_.SetEngineProblem("");
  report_.SetContainersWithoutGpus({});
  runner_.RunUntilIdle();
  EXPECT_TRUE(ConditionHas("GPUsHealthy")) << condition_;
}

TEST_F(NodeReportTest, TheNodeIsReadAgainRegularlyAndAfterARegistration) {
  Start();
  const int start = gets_;
  report_.OnKubeletRegistered();
  runner_.AdvanceTimeAndRun(NodeReporter::kKubeletRegistrationTime);
  EXPECT_EQ(gets_, start + 1);
  runner_.AdvanceTimeAndRun(2 * NodeReporter::kCheckInterval);
  EXPECT_EQ(gets_, start + 3);
}

}  // namespace
}  // namespace tessera::agent
