// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/unfit_reasons.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/base/random.h"
#include "src/ledger/ledger.h"
#include "src/ledger/testing/objects.h"

namespace tessera::ledger {
namespace {

using testing::GpuNode;
using testing::GpuPod;

// Compares the cache with an evaluation of every node, over random additions and removals of pods,
// nodes and demands; there are more demands than the cache keeps.
TEST(UnfitReasonsTest, EqualsAnEvaluationOfTheNode) {
  Random random(3);
  FakeClock clock;
  const auto ledger = ClusterLedger::Make({}, &clock).value();
  UnfitReasons reasons(ledger->cluster());
  const auto random_pod = [&](int i) {
    const bool whole = random.Below(2) == 0;
    return GpuPod(fmt::format("p{}", i),
                  {{whole ? names::kResourceGpu : names::kResourceGpuMem,
                    std::to_string(1 + random.Below(whole ? 5 : 2 * UnfitReasons::kMaxShapes))}});
  };
  for (int step = 0; step < 1500; ++step) {
    const std::string node = fmt::format("n{}", random.Below(6));
    const kube::PodObject pod = random_pod(static_cast<int>(random.Below(40)));
    switch (random.Below(5)) {
      case 0:
        ledger->SetNode(GpuNode(node, static_cast<int>(1 + random.Below(8))));
        break;
      case 1:
        if (random.Below(8) == 0) ledger->RemoveNode(node);
        break;
      case 2:
        ledger->RemovePod(pod.meta.uid);
        break;
      default:
        (void)ledger->Assume(ledger->MakeQuery(pod).value(), node, std::chrono::hours(1));
    }
    const auto query = ledger->MakeQuery(random_pod(1000)).value();
    const placement::Cluster& cluster = ledger->cluster();
    const placement::Demand& demand = cluster.demand(query.gpus_only);
    for (placement::NodeId id = 0; id < cluster.size(); ++id) {
      const placement::NodeShortfall shortfall = placement::ShortfallOf(cluster.node(id), demand);
      const UnfitReasons::Reason* reason = reasons.ReasonFor(query.gpus_only, id);
      ASSERT_EQ(reason == nullptr, shortfall.ok()) << step;
      if (reason == nullptr) continue;
      // kube-scheduler writes the number of nodes before each reason, so no text begins with a
      // number.
      const std::string text = placement::TextOf(shortfall, demand, cluster);
      const bool begins_with_digit = text.front() >= '0' && text.front() <= '9';
      ASSERT_EQ(reason->text, begins_with_digit ? "node(s) without room: " + text : text) << step;
      ASSERT_EQ(reason->unresolvable, shortfall.unresolvable) << step;
    }
  }
}

}  // namespace
}  // namespace tessera::ledger
