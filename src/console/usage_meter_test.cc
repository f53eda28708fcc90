// SPDX-License-Identifier: Apache-2.0
#include "src/console/usage_meter.h"

#include <gtest/gtest.h>

#include "src/ledger/testing/objects.h"

namespace tessera::console {
namespace {

using ledger::testing::GpuNode;
using ledger::testing::UuidOf;
using ledger::testing::Whole;

class UsageMeterTest : public ::testing::Test {
 protected:
  UsageMeterTest() : ledger_(ledger::ClusterLedger::Make({}, &clock_).value()) {
    ledger_->SetNode(GpuNode("n", 8));
  }
  void Bind(const std::string& name, int gpus, const std::string& app) {
    kube::PodObject pod = Whole(name, gpus);
    pod.meta.labels["app"] = app;
    ledger::testing::Bind(*ledger_, pod, "n");
  }
  void Tick() { meter_.Tick(*ledger_, clock_.Now(), clock_.WallNow()); }
  void Pass(Duration time) {
    clock_.Advance(time);
    Tick();
  }
  std::string Rows(bool all = true) {
    return meter_.ToJson([&](const std::string& ns) { return ns == "ns"; }, all)
        .Find("rows")
        ->Serialize();
  }
  static std::string Page(const std::string& pod, int gpu, int allocated, int idle) {
    const std::string labels = fmt::format(
        R"({{namespace="ns",pod="{}",container="main",uuid="{}"}})", pod, UuidOf("n", gpu));
    return fmt::format(
        "# TYPE x counter\ntessera_container_gpu_allocated_seconds_total{0} {1}\n"
        "tessera_container_gpu_idle_seconds_total{0} {2}\nother{0} 3\n",
        labels, allocated, idle);
  }

  FakeClock clock_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
  UsageMeter meter_{"app"};
};

TEST_F(UsageMeterTest, AddsWhatPodsHoldByNamespaceAndLabel) {
  Tick();
  Bind("a", 2, "x");
  Bind("b", 1, "x");
  Bind("c", 1, "y");
  Pass(std::chrono::seconds(60));
  Pass(std::chrono::seconds(120));
  EXPECT_EQ(
      Rows(),
      R"([{"namespace":"ns","value":"x","allocated":0.1500,"measured":0.0000,"idle":0.0000},)"
      R"({"namespace":"ns","value":"y","allocated":0.0500,"measured":0.0000,"idle":0.0000}])");
  ledger_->RemovePod(Uid("uid-c"));
  Pass(std::chrono::seconds(120));
  EXPECT_NE(Rows().find(R"("value":"y","allocated":0.0500)"), std::string::npos) << Rows();
}

TEST_F(UsageMeterTest, ALongGapIsNotCounted) {
  Bind("a", 1, "x");
  Tick();
  Pass(std::chrono::hours(1));
  Pass(std::chrono::seconds(36));
  EXPECT_NE(Rows().find(R"("allocated":0.0100)"), std::string::npos) << Rows();
}

TEST_F(UsageMeterTest, IdleTimeIsTheIncreaseOfTheCountersBetweenTwoPages) {
  Bind("a", 1, "x");
  Tick();
  int gpu = 0;
  for (int i = 0; i < 8; ++i) {
    if (ledger::SharesOf(*ledger_->FindPod("ns", "a")).front().first == UuidOf("n", i)) gpu = i;
  }
  meter_.TakePage(*ledger_, "n", Page("a", gpu, 1000, 500));
  meter_.TakePage(*ledger_, "n", Page("a", gpu, 1360, 590));
  EXPECT_NE(Rows().find(R"("measured":0.1000,"idle":0.0250)"), std::string::npos) << Rows();
  // The agent restarts, so its counters begin at zero.
  meter_.TakePage(*ledger_, "n", Page("a", gpu, 10, 10));
  meter_.TakePage(*ledger_, "n", Page("a", gpu, 370, 10));
  EXPECT_NE(Rows().find(R"("measured":0.2000,"idle":0.0250)"), std::string::npos) << Rows();
}

TEST_F(UsageMeterTest, PodsThatAreNotKnownAreSkipped) {
  Tick();
  meter_.TakePage(*ledger_, "n", Page("ghost", 0, 10, 10));
  meter_.TakePage(*ledger_, "n", Page("ghost", 0, 20, 20));
  EXPECT_EQ(Rows(), "[]");
}

TEST_F(UsageMeterTest, RowsOfOtherNamespacesAreHidden) {
  Bind("a", 1, "x");
  Tick();
  Pass(std::chrono::seconds(10));
  EXPECT_EQ(meter_.ToJson([](const std::string&) { return false; }, true).Find("rows")->Serialize(),
            "[]");
  meter_.set_problem(Error(Code::kPermissionDenied, "no"));
  const Json json = meter_.ToJson([](const std::string&) { return true; }, false);
  EXPECT_EQ(json.StringAt("problem").value(), "no");
  EXPECT_EQ(json.StringAt("label").value(), "app");
}

}  // namespace
}  // namespace tessera::console
