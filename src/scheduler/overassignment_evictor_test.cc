// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/overassignment_evictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/ledger/testing/objects.h"

namespace tessera::scheduler {
namespace {

using namespace std::chrono_literals;
using ledger::testing::BoundPod;
using ledger::testing::GpuNode;
using ledger::testing::GpuPod;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FakeEvictions final : public EvictionApi {
 public:
  kube::Operation Evict(const std::string&, const std::string&, const Uid& uid,
                        std::function<void(const Status&)> on_done) override {
    evicted.push_back(uid);
    answer = std::move(on_done);
    return {};
  }
  std::vector<Uid> evicted;
  std::function<void(const Status&)> answer;
};

class OverassignmentEvictorTest : public ::testing::Test {
 protected:
  void SetUp() override { ledger_->SetNode(GpuNode("n", 2)); }
  // Binds a pod to GPU 0 of the node at that second.
  kube::PodObject Bind(const std::string& name, int second, bool controlled = true) {
    kube::PodObject pod = GpuPod(name, {{names::kResourceGpu, "1"}});
    pod.meta.has_controller = controlled;
    pod.scheduled_at = WallTime(std::chrono::seconds(1000 + second));
    pod = BoundPod(pod, "n",
                   {{std::string(names::kAnnotationAssignment),
                     R"({"version":1,"containers":{"main":[{"gpu":"GPU-n-0","milli":1000,)"
                     R"("bytes":85899345920}]}})"}});
    ledger_->SetPod(pod);
    return pod;
  }
  void Advance(Duration by) {
    for (; by > Duration::zero(); by -= 1s) {
      clock_.Advance(1s);
      overassignment_evictor_.Tick();
    }
  }

  FakeClock clock_;
  SchedulerMetrics metrics_;
  FakeEvictions api_;
  std::vector<std::string> recorded_;
  std::unique_ptr<ledger::ClusterLedger> ledger_ = ledger::ClusterLedger::Make({}, &clock_).value();
  OverassignmentEvictor overassignment_evictor_{
      *ledger_, api_, clock_, metrics_,
      [this](const kube::PodObject& pod, kube::EventKind, std::string_view reason,
             const std::string& message) {
        recorded_.push_back(fmt::format("{} {}: {}", pod.meta.name, reason, message));
      }};
};

TEST_F(OverassignmentEvictorTest, TheOlderBindingWins) {
  Bind("b-older", 1);
  Bind("a-newer", 2);
  Advance(30s);
  EXPECT_THAT(api_.evicted, ElementsAre(Uid("uid-a-newer")));
  ASSERT_THAT(recorded_, SizeIs(2));
  EXPECT_THAT(recorded_[0], HasSubstr("b-older GPUOverassigned: GPU GPU-n-0 of node n"));
  EXPECT_THAT(recorded_[1], HasSubstr("a-newer GPUOverassigned"));
  EXPECT_THAT(recorded_[1], HasSubstr("is evicted"));
}

TEST_F(OverassignmentEvictorTest, IgnoresAShortConflict) {
  Bind("older", 1);
  const kube::PodObject newer = Bind("newer", 2);
  Advance(9s);
  ledger_->RemovePod(newer.meta.uid);
  Advance(30s);
  Bind("newer", 2);
  Advance(9s);  // kConflictGrace starts again
  EXPECT_THAT(api_.evicted, IsEmpty());
  EXPECT_THAT(recorded_, IsEmpty());
}

TEST_F(OverassignmentEvictorTest, PodsThatAreBeingDeletedCountAsGone) {
  kube::PodObject older = Bind("older", 1);
  Bind("newer", 2);
  older.meta.deleting = true;
  ledger_->SetPod(older);
  Advance(60s);
  EXPECT_THAT(api_.evicted, IsEmpty());
}

TEST_F(OverassignmentEvictorTest, APodWithoutAControllerIsNotEvicted) {
  Bind("older", 1);
  Bind("newer", 2, false);
  Advance(5min);
  EXPECT_THAT(api_.evicted, IsEmpty());
  ASSERT_THAT(recorded_, SizeIs(2));
  EXPECT_THAT(recorded_[1], HasSubstr("delete and create it again"));
}

TEST_F(OverassignmentEvictorTest, ReportsAnOverassignmentAfterTenSeconds) {
  Bind("older", 1);
  Bind("newer", 2);
  Advance(10s);  // the first second passes before Tick observes the conflict
  EXPECT_THAT(recorded_, IsEmpty());
  Advance(1s);
  EXPECT_THAT(recorded_, SizeIs(2));
}

TEST_F(OverassignmentEvictorTest, WaitsBetweenEvictionsAndLongerForTheSamePod) {
  Bind("a", 1);
  Bind("b", 2);
  Bind("c", 3);
  Advance(11s);
  ASSERT_THAT(api_.evicted, ElementsAre(Uid("uid-b")));
  api_.answer(Status(Code::kResourceExhausted, "a budget forbids it"));
  Advance(4s);
  EXPECT_THAT(api_.evicted, SizeIs(1));
  Advance(1s);
  ASSERT_THAT(api_.evicted, ElementsAre(Uid("uid-b"), Uid("uid-c")));
  api_.answer(Status(Code::kNotFound, "it is gone"));
  ledger_->RemovePod(Uid("uid-c"));
  EXPECT_EQ(metrics_.overassignment_evictions.values().at("evicted"), 1u);
  Advance(24s);
  EXPECT_THAT(api_.evicted, SizeIs(2));
  Advance(1s);
  EXPECT_THAT(api_.evicted, ElementsAre(Uid("uid-b"), Uid("uid-c"), Uid("uid-b")));
}

TEST_F(OverassignmentEvictorTest, EvictionsGoOneByOneAndAreRetried) {
  Bind("a", 1);
  Bind("b", 2);
  Bind("c", 3);
  Advance(30s);
  ASSERT_THAT(api_.evicted, ElementsAre(Uid("uid-b")));  // no response yet
  api_.answer(Status(Code::kResourceExhausted, "a budget forbids it"));
  Advance(1s);
  EXPECT_THAT(api_.evicted, ElementsAre(Uid("uid-b"), Uid("uid-c")));
  api_.answer(Status::Ok());
  ledger_->RemovePod(Uid("uid-c"));
  EXPECT_EQ(metrics_.overassignment_evictions.values().at("evicted"), 1u);
  Advance(20s);
  EXPECT_THAT(api_.evicted, ElementsAre(Uid("uid-b"), Uid("uid-c"), Uid("uid-b")));
}

}  // namespace
}  // namespace tessera::scheduler
