// SPDX-License-Identifier: Apache-2.0
#include "src/console/quota_edit.h"

#include <gtest/gtest.h>

#include "src/formats/json.h"
#include "src/ledger/testing/objects.h"

namespace tessera::console {
namespace {

using ledger::testing::GpuNode;
using ledger::testing::Whole;

class QuotaEditTest : public ::testing::Test {
 protected:
  QuotaEditTest() : ledger_(ledger::ClusterLedger::Make({}, &clock_).value()) {
    ledger_->SetNode(GpuNode("a", 4));
  }
  // Pods of ledger::testing are in namespace "ns".
  void Bind(const std::string& name, int gpus) {
    kube::PodObject pod = Whole(name, gpus);
    pod.scheduled_at = WallTime(std::chrono::seconds(++bound_));
    ledger::testing::Bind(*ledger_, pod, "a");
  }
  void AddWaitingPod(const std::string& name, int gpus) { ledger_->SetPod(Whole(name, gpus)); }
  static QuotaChange ChangeTo(const std::string& entry, const std::string& before = "null") {
    return ParseQuotaChange(
               ParseJson(R"({"namespace":"ns","entry":)" + entry + R"(,"before":)" + before + "}")
                   .value())
        .value();
  }
  Json ConsequencesOf(const std::string& entry) { return Consequences(*ledger_, ChangeTo(entry)); }
  static Json MapWith(const std::string& quotas) {
    return Json::MakeObject(
        {{"metadata", Json::MakeObject({{"resourceVersion", Json::String("7")}})},
         {"data",
          Json::MakeObject({{"gpu_quota", Json::String(quotas)}, {"other", Json::String("x")}})}});
  }
  static Result<std::string> Written(const Json* map, const QuotaChange& change) {
    const kube::ObjectRef object{kube::kConfigMaps, "gpuquota", "kube-system", ""};
    ASSIGN_OR_RETURN(const Json next, WithQuota(map, object, "gpu_quota", change));
    return FindPath(next, {"data", "gpu_quota"})->string_value();
  }

  FakeClock clock_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
  int bound_ = 0;
};

TEST_F(QuotaEditTest, NamesTheNewestPodsAboveALowerLimit) {
  Bind("old", 1);
  Bind("middle", 1);
  Bind("new", 1);
  const Json found = ConsequencesOf(R"({"quota":{"A100":1}})");
  EXPECT_EQ(found.Find("lines")->Serialize(),
            R"([{"model":"A100","usedMilli":3000,"limitMilli":1000}])");
  const Json::Array& over = found.Find("over")->items();
  ASSERT_EQ(over.size(), 2U);
  EXPECT_EQ(over[0].StringAt("pod").value(), "new");
  EXPECT_EQ(over[1].StringAt("pod").value(), "middle");
}

TEST_F(QuotaEditTest, CountsTheNodesOfWaitingPodsBeforeAndAfter) {
  AddWaitingPod("w", 2);
  EXPECT_EQ(ConsequencesOf(R"({"quota":{"A100":1}})").Find("waiting")->Serialize(),
            R"([{"pod":"w","before":1,"after":0}])");
  EXPECT_TRUE(ledger_->quota().config().empty());
  EXPECT_EQ(ConsequencesOf("null").Find("waiting")->Serialize(),
            R"([{"pod":"w","before":1,"after":1}])");
}

TEST_F(QuotaEditTest, ShowsModelsAndPoolsThatAreNoLongerAllowed) {
  Bind("p", 1);
  const Json found = ConsequencesOf(R"({"quota":{"H100":1},"pool":["gold"]})");
  EXPECT_EQ(found.Find("lines")->items().at(1).IntAt("usedMilli").value(), 1000);
  EXPECT_EQ(found.Find("outside")->Serialize(), R"(["p"])");
  EXPECT_EQ(found.Find("over")->items().at(0).StringAt("pod").value(), "p");
}

TEST_F(QuotaEditTest, NamesModelsThatNoGpuHas) {
  EXPECT_EQ(ConsequencesOf(R"({"quota":{"A100":1,"A10O":1}})").Find("unknown")->Serialize(),
            R"(["A10O"])");
}

TEST_F(QuotaEditTest, OtherNamespacesAndKeysStay) {
  const Json map = MapWith(R"({"ns":{"quota":{"A100":4}},"b":{"pool":["x"]}})");
  const QuotaChange change = ChangeTo(R"({"quota":{"A100":2}})", R"({"quota":{"A100":4}})");
  EXPECT_EQ(Written(&map, change).value(), R"({"ns":{"quota":{"A100":2}},"b":{"pool":["x"]}})");
  EXPECT_EQ(Written(&map, ChangeTo("null", R"({"quota":{"A100":4}})")).value(),
            R"({"b":{"pool":["x"]}})");
  EXPECT_EQ(Written(nullptr, ChangeTo(R"({"quota":{"A100":2}})")).value(),
            R"({"ns":{"quota":{"A100":2}}})");
}

TEST_F(QuotaEditTest, AChangeOfAnOutdatedOrInvalidEntryIsRejected) {
  const Json map = MapWith(R"({"ns":{"quota":{"A100":4}}})");
  EXPECT_EQ(
      Written(&map, ChangeTo(R"({"quota":{"A100":2}})", R"({"quota":{"A100":3}})")).status().code(),
      Code::kAborted);
  const Json broken = MapWith(R"({"ns":{"quota":{"A100":-4}}})");
  EXPECT_EQ(Written(&broken, ChangeTo("null")).status().code(), Code::kInvalidArgument);
}

TEST_F(QuotaEditTest, InvalidEntriesAreRejected) {
  for (const char* entry : {R"({"quota":{"A100":1.5}})", R"({"quota":[]})", "[]", R"({"x":1})"}) {
    const Json body =
        Json::MakeObject({{"namespace", Json::String("ns")}, {"entry", ParseJson(entry).value()}});
    EXPECT_EQ(ParseQuotaChange(body).status().code(), Code::kInvalidArgument) << entry;
  }
}

}  // namespace
}  // namespace tessera::console
