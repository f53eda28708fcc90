// SPDX-License-Identifier: Apache-2.0
#include "src/console/what_if.h"

#include <gtest/gtest.h>

#include "src/ledger/testing/objects.h"

namespace tessera::console {
namespace {

using ledger::testing::GpuNode;
using ledger::testing::Whole;

class WhatIfTest : public ::testing::Test {
 protected:
  WhatIfTest() : ledger_(ledger::ClusterLedger::Make({}, &clock_).value()) {
    ledger_->SetNode(GpuNode("a", 4));
    ledger_->SetNode(GpuNode("b", 2));
  }
  void Bind(const std::string& name, int gpus, const std::string& node) {
    ledger::testing::Bind(*ledger_, Whole(name, gpus), node);
  }
  kube::PodObject AddWaitingPod(const std::string& name, int gpus) {
    kube::PodObject pod = Whole(name, gpus);
    ledger_->SetPod(pod);
    return pod;
  }
  Json RoomFor(const kube::PodObject& pod) {
    return FindPodsToMove(*ledger_, ledger_->pods().at(pod.meta.uid).request);
  }
  Result<Json> Answer(const kube::PodObject& pod, const std::string& body) {
    ASSIGN_OR_RETURN(const WhatIf what_if, ParseWhatIf(ParseJson(body).value()));
    return AnswerWhatIf(*ledger_, pod.meta.uid, what_if, true);
  }

  FakeClock clock_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
};

TEST_F(WhatIfTest, FindsPodsWhoseEndWouldMakeRoom) {
  Bind("small", 1, "a");
  Bind("large", 2, "a");
  const kube::PodObject waiting = AddWaitingPod("w", 3);
  const Json room = RoomFor(waiting);
  // Without "small" two GPUs are free, without "large" three.
  const Json::Array& pods = room.Find("pods")->items();
  ASSERT_EQ(pods.size(), 1U) << room.Serialize();
  EXPECT_EQ(pods[0].StringAt("name").value(), "large");
  EXPECT_EQ(pods[0].StringAt("node").value(), "a");
  EXPECT_EQ(pods[0].IntAt("milli").value(), 2000);
  EXPECT_EQ(pods[0].IntAt("otherNodes").value(), 1);
  EXPECT_EQ(pods[0].StringAt("best").value(), "b");
  EXPECT_TRUE(room.BoolAt("complete").value());
}

TEST_F(WhatIfTest, NoPodMakesRoomOnANodeThatTheWaitingPodDoesNotSelect) {
  Bind("large", 4, "a");
  kube::PodObject waiting = Whole("w", 3);
  waiting.constraints.selector = {{"kubernetes.io/hostname", "b"}};
  ledger_->SetPod(waiting);
  EXPECT_TRUE(RoomFor(waiting).Find("pods")->items().empty());
}

TEST_F(WhatIfTest, AnAnswerLeavesTheLedgerUnchanged) {
  Bind("large", 4, "a");
  const kube::PodObject waiting = AddWaitingPod("w", 3);
  (void)RoomFor(waiting);
  (void)Answer(waiting, R"({"without":{"namespace":"ns","name":"large"}})");
  auto query = ledger_->MakeQuery(waiting).value();
  EXPECT_FALSE(ledger_->Evaluate(query, "a").fits);
  EXPECT_EQ(ledger_->FindPod("ns", "large")->node, "a");
}

TEST_F(WhatIfTest, AnotherRequestOrModelIsEvaluated) {
  const kube::PodObject waiting = AddWaitingPod("w", 8);
  EXPECT_EQ(Answer(waiting, "{}")->IntAt("fits").value(), 0);
  EXPECT_EQ(Answer(waiting, R"({"request":{"whole":true,"gpus":2}})")->IntAt("fits").value(), 2);
  const Result<Json> part =
      Answer(waiting, R"({"request":{"whole":false,"hundredths":30,"memoryBlocks":4}})");
  EXPECT_EQ(part->IntAt("fits").value(), 2);
  EXPECT_EQ(part->StringAt("request").value(), "vcuda-core: 30, vcuda-memory: 4");
  EXPECT_EQ(Answer(waiting, R"({"request":{"whole":true,"gpus":2},"model":"H100"})")
                ->IntAt("fits")
                .value(),
            0);
}

TEST_F(WhatIfTest, TheGpusOfAnExcludedPodCountAsFree) {
  Bind("large", 4, "a");
  const kube::PodObject waiting = AddWaitingPod("w", 4);
  const std::string without = R"({"without":{"namespace":"ns","name":"large"}})";
  EXPECT_EQ(Answer(waiting, "{}")->IntAt("fits").value(), 0);
  EXPECT_EQ(Answer(waiting, without)->IntAt("fits").value(), 1);
  EXPECT_EQ(Answer(waiting, R"({"without":{"namespace":"x","name":"large"}})").status().code(),
            Code::kNotFound);
}

TEST_F(WhatIfTest, NearNodesShowEachGpu) {
  Bind("small", 1, "b");
  const kube::PodObject waiting = AddWaitingPod("w", 2);
  const Result<Json> answer = Answer(waiting, "{}");
  const Json::Array& near = answer->Find("near")->items();
  ASSERT_EQ(near.size(), 2U);
  EXPECT_EQ(near[0].StringAt("node").value(), "a");
  EXPECT_TRUE(near[0].BoolAt("fits").value());
  const Json::Array& chosen = near[0].Find("gpus")->items();
  EXPECT_EQ(
      std::ranges::count_if(chosen, [](const Json& gpu) { return gpu.BoolAt("chosen").value(); }),
      2);
  EXPECT_FALSE(near[1].BoolAt("fits").value());
  const Json::Array& gpus = near[1].Find("gpus")->items();
  EXPECT_EQ(
      std::ranges::count_if(
          gpus, [](const Json& gpu) { return gpu.StringAt("reason").value() == "held-whole"; }),
      1);
}

TEST_F(WhatIfTest, APodWithAnInvalidRequestFitsNowhere) {
  const kube::PodObject invalid = ledger::testing::GpuPod("i", {{"nvidia.com/gpu", "1.5"}});
  ledger_->SetPod(invalid);
  const Result<Json> answer = Answer(invalid, R"({"model":""})");
  EXPECT_EQ(answer.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(answer.status().message(), ledger_->pods().at(invalid.meta.uid).problem());
}

TEST_F(WhatIfTest, InvalidRequestsAreRejected) {
  const kube::PodObject waiting = AddWaitingPod("w", 1);
  EXPECT_EQ(Answer(waiting, R"({"request":{"whole":true,"gpus":0}})").status().code(),
            Code::kInvalidArgument);
  kube::PodObject two = waiting;
  two.containers.push_back(two.containers.front());
  two.containers.back().name = "side";
  ledger_->SetPod(two);
  EXPECT_EQ(Answer(two, R"({"request":{"whole":true,"gpus":1}})").status().code(),
            Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tessera::console
