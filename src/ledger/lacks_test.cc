// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/lacks.h"

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

// Against a look at every node, over random comings and goings of pods, nodes and demands: more
// demands than are kept.
TEST(LacksTest, SaysWhatALookAtTheNodeSays) {
  Random random(3);
  FakeClock clock;
  const auto ledger = ClusterLedger::Make({}, &clock).value();
  Lacks lacks(ledger->cluster());
  const auto random_pod = [&](int i) {
    const bool whole = random.Below(2) == 0;
    return GpuPod(fmt::format("p{}", i),
                  {{whole ? names::kResourceGpu : names::kResourceGpuMem,
                    std::to_string(1 + random.Below(whole ? 5 : 2 * Lacks::kMaxShapes))}});
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
        (void)ledger->Assume(ledger->Ask(pod).value(), node, std::chrono::hours(1));
    }
    const auto question = ledger->Ask(random_pod(1000)).value();
    const placement::Cluster& cluster = ledger->cluster();
    const placement::Demand& demand = cluster.demand(question.gpus_only);
    for (placement::NodeId id = 0; id < cluster.size(); ++id) {
      const placement::NodeLack lack = placement::WhyNot(cluster.node(id), demand);
      const Lacks::Reason* reason = lacks.Of(question.gpus_only, id);
      ASSERT_EQ(reason == nullptr, lack.ok()) << step;
      if (reason == nullptr) continue;
      ASSERT_EQ(reason->text, placement::TextOf(lack, demand, cluster)) << step;
      ASSERT_EQ(reason->unresolvable, lack.unresolvable) << step;
    }
  }
}

}  // namespace
}  // namespace tessera::ledger
