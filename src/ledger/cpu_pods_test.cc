// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "src/base/random.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/ledger.h"
#include "src/ledger/testing/objects.h"

namespace tessera::ledger {
namespace {

using testing::BoundPod;
using testing::GpuNode;
using testing::GpuPod;

class CpuPodsTest : public ::testing::Test {
 protected:
  // CPU in thousandths of a core and memory in bytes that pods hold on a node.
  std::pair<int64_t, int64_t> Taken(std::string_view name) {
    const auto& state = *ledger_->cluster().node(ledger_->FindNode(name)->id).state;
    return {state.cpu_total - state.cpu_free, state.memory_total - state.memory_free};
  }
  kube::PodObject CpuPod(const std::string& name, const std::string& cpu,
                         const std::string& memory = "0") {
    return GpuPod(name, {{"cpu", cpu}, {"memory", memory}});
  }
  void Set(const kube::PodObject& pod, const std::string& node) {
    ledger_->SetPod(BoundPod(pod, node, {}));
  }

  FakeClock clock_;
  std::unique_ptr<ClusterLedger> ledger_ = ClusterLedger::Make({}, &clock_).value();
};

TEST_F(CpuPodsTest, TakeTheirRequestsOnNodesWithGpus) {
  ledger_->SetNode(GpuNode("n", 2));
  const kube::PodObject a = CpuPod("a", "2", "4Gi"), b = CpuPod("b", "500m");
  ledger_->SetPod(a);
  EXPECT_EQ(Taken("n").first, 0) << "pod a waits and has no node";
  Set(a, "n");
  Set(a, "n");
  Set(b, "n");
  EXPECT_EQ(Taken("n"), std::pair(int64_t{2500}, int64_t{4} << 30));
  EXPECT_TRUE(ledger_->pods().empty());
  Set(CpuPod("b", "1"), "n");  // resized
  EXPECT_EQ(Taken("n").first, 3000);
  Set(CpuPod("b", "1", "1Gi"), "n");
  EXPECT_EQ(Taken("n"), std::pair(int64_t{3000}, int64_t{5} << 30));
  kube::PodObject ended = BoundPod(a, "n", {});
  ended.phase = kube::PodPhase::kSucceeded;
  ledger_->SetPod(ended);
  ledger_->RemovePod(b.meta.uid);
  EXPECT_EQ(Taken("n"), std::pair(int64_t{0}, int64_t{0}));
}

TEST_F(CpuPodsTest, CountWhenTheirNodeGetsGpusAndWhenItReturns) {
  kube::NodeObject without = GpuNode("n", 0);
  Set(CpuPod("a", "2"), "n");  // before its node is known
  ledger_->SetNode(without);
  Set(CpuPod("b", "3"), "n");
  EXPECT_EQ(ledger_->FindNode("n")->id, placement::kNoNode);
  ledger_->SetNode(GpuNode("n", 2));
  EXPECT_EQ(Taken("n").first, 5000);
  ledger_->RemoveNode("n");
  ledger_->RemovePod(Uid("uid-a"));
  ledger_->SetNode(GpuNode("n", 2));
  EXPECT_EQ(Taken("n").first, 3000);
  ledger_->RemovePod(Uid("uid-b"));
  EXPECT_EQ(Taken("n").first, 0);
}

TEST_F(CpuPodsTest, CountsACorrectedPod) {
  ledger_->SetNode(GpuNode("n", 1));
  Set(CpuPod("a", "lots"), "n");
  ASSERT_EQ(ledger_->pods().size(), 1u);
  EXPECT_NE(ledger_->pods().begin()->second.problem(), "");
  Set(CpuPod("a", "2"), "n");
  EXPECT_TRUE(ledger_->pods().empty());
  EXPECT_EQ(Taken("n").first, 2000);
  Set(CpuPod("a", "lots"), "n");
  EXPECT_EQ(Taken("n").first, 0);
}

TEST_F(CpuPodsTest, AddUpOverRandomHistories) {
  Random random(1);
  std::map<std::string, std::pair<std::string, int>> pods;  // node and cores, by name
  for (int step = 0; step < 5000; ++step) {
    const std::string node = fmt::format("n{}", random.Below(5));
    const std::string name = fmt::format("p{}", random.Below(60));
    switch (random.Below(8)) {
      case 0:
        ledger_->SetNode(GpuNode(node, static_cast<int>(random.Below(3))));
        break;
      case 1:
        ledger_->RemoveNode(node);
        break;
      case 2:
      case 3:
        ledger_->RemovePod(Uid("uid-" + name));
        pods.erase(name);
        break;
      default: {
        auto& pod = pods.try_emplace(name, node, 0).first->second;
        pod.second = 1 + static_cast<int>(random.Below(2));
        Set(CpuPod(name, fmt::format("{}", pod.second)), pod.first);
      }
    }
    std::map<std::string, int64_t> expected;
    for (const auto& [pod, where] : pods) expected[where.first] += 1000 * where.second;
    for (const auto& [known, entry] : ledger_->nodes()) {
      if (entry.id == placement::kNoNode) continue;
      ASSERT_EQ(Taken(known).first, expected[known]) << step;
    }
  }
}

}  // namespace
}  // namespace tessera::ledger
