// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/wait_reasons.h"

#include <gtest/gtest.h>

#include "src/ledger/testing/objects.h"

namespace tessera::scheduler {
namespace {

using ledger::Verdict;

constexpr std::string_view kBusy = "busy";
constexpr std::string_view kOtherModel = "other-model";

std::string_view ReasonOf(const std::vector<Verdict>& verdicts) {
  VerdictKinds kinds;
  for (const Verdict& verdict : verdicts) kinds.Add(verdict);
  return kinds.Reason();
}

TEST(WaitReasonsTest, TheReasonIsTheKindClosestToAFit) {
  const Verdict fits{.fits = true}, busy{.kind = kBusy};
  const Verdict other{.unresolvable = true, .kind = kOtherModel};
  const Verdict quota{.unresolvable = true, .kind = Verdict::kQuota};
  const Verdict reserved{.kind = Verdict::kReserved};
  const Verdict none{.unresolvable = true, .kind = Verdict::kNoKnownGpus};
  const Verdict unknown{.kind = Verdict::kUnknownNode};
  EXPECT_EQ(ReasonOf({other, busy, fits, quota}), WaitReasons::kNotBound);
  EXPECT_EQ(ReasonOf({other, busy, quota, busy}), Verdict::kQuota);
  EXPECT_EQ(ReasonOf({quota, reserved, busy, reserved}), Verdict::kReserved);
  EXPECT_EQ(ReasonOf({other, other, busy, none}), kBusy);
  EXPECT_EQ(ReasonOf({none, none, unknown, other}), kOtherModel);
  EXPECT_EQ(ReasonOf({none, unknown, none}), Verdict::kNoKnownGpus);
  EXPECT_EQ(ReasonOf({}), Verdict::kNoKnownGpus);
}

TEST(WaitReasonsTest, PodsThatDoNotWaitAreForgotten) {
  FakeClock clock;
  const auto ledger = ledger::ClusterLedger::Make({}, &clock).value();
  const kube::PodObject waits = ledger::testing::Whole("waits");
  const kube::PodObject bound = ledger::testing::Whole("bound");
  ledger->SetPod(waits);
  ledger->SetPod(ledger::testing::BoundPod(bound, "n1", {}));
  WaitReasons reasons;
  reasons.ForgetPodsNotWaiting(*ledger, clock.Now());
  for (const Uid& uid : {waits.meta.uid, bound.meta.uid, Uid("gone")}) {
    reasons.Set(uid, kBusy, clock.Now());
  }
  EXPECT_EQ(reasons.Find(Uid("gone")), kBusy) << "the watch may be late";
  clock.Advance(WaitReasons::kForgetAfter);
  reasons.Set(Uid("new"), kBusy, clock.Now());
  reasons.ForgetPodsNotWaiting(*ledger, clock.Now());
  EXPECT_EQ(reasons.size(), 2u);
  EXPECT_EQ(reasons.Find(waits.meta.uid), kBusy);
  EXPECT_EQ(reasons.Find(Uid("new")), kBusy);
  EXPECT_FALSE(reasons.Find(bound.meta.uid));
}

}  // namespace
}  // namespace tessera::scheduler
