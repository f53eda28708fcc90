// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/ledger/ledger.h"
#include "src/ledger/testing/objects.h"

namespace tessera::ledger {
namespace {

using testing::BoundPod;
using ::testing::ElementsAre;
using testing::GpuNode;
using testing::GpuPod;
using ::testing::IsEmpty;
using testing::UuidOf;

class OverassignedTest : public ::testing::Test {
 protected:
  void SetUp() override { ledger_->SetNode(GpuNode("n", 2)); }

  struct Share {
    int gib = 80;  // of 80
    int gpu = 0;
  };
  // Binds the pod at that second.
  kube::PodObject Bind(const std::string& name, int second, Share share) {
    const bool whole = share.gib == 80;
    kube::PodObject pod = whole
                              ? GpuPod(name, {{names::kResourceGpu, "1"}})
                              : GpuPod(name, {{names::kResourceGpuMem, std::to_string(share.gib)}});
    pod.scheduled_at = WallTime(std::chrono::seconds(second));
    pod = BoundPod(
        pod, "n",
        {{std::string(names::kAnnotationAssignment),
          fmt::format(R"({{"version":1,"containers":{{"main":[{{"gpu":"GPU-n-{}","milli":{},)"
                      R"("bytes":{}}}]}}}})",
                      share.gpu, whole ? 1000 : 0, int64_t{share.gib} << 30)}});
    ledger_->SetPod(pod);
    return pod;
  }
  // "excess after older on GPU".
  std::vector<std::string> Found() const {
    std::vector<std::string> found;
    for (const auto& overassignment : ledger_->FindOverassignments()) {
      EXPECT_EQ(overassignment.node, "n");
      found.push_back(fmt::format("{} after {} on {}", overassignment.excess->request.name,
                                  overassignment.older->request.name, overassignment.gpu));
    }
    return found;
  }

  FakeClock clock_;
  std::unique_ptr<ClusterLedger> ledger_ = ClusterLedger::Make({}, &clock_).value();
};

TEST_F(OverassignedTest, FullGpusAreNotOverassigned) {
  Bind("a", 1, {.gib = 50});
  Bind("b", 2, {.gib = 30});
  Bind("c", 3, {.gpu = 1});
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(OverassignedTest, TheNewerBindingIsInExcessInAnyOrderOfEvents) {
  Bind("newer", 9, {});
  Bind("older", 8, {});
  EXPECT_THAT(Found(), ElementsAre("newer after older on GPU-n-0"));
  ledger_->RemovePod(Uid("uid-newer"));
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(OverassignedTest, ANewerShareThatHasRoomIsNotInExcess) {
  Bind("first", 1, {.gib = 50});
  Bind("large", 2, {.gib = 40});
  Bind("small", 3, {.gib = 20});
  EXPECT_THAT(Found(), ElementsAre("large after first on GPU-n-0"));
}

TEST_F(OverassignedTest, AWholeGpuExcludesShares) {
  Bind("share", 1, {.gib = 1});
  Bind("whole", 2, {});
  Bind("other-gpu", 3, {.gpu = 1});
  EXPECT_THAT(Found(), ElementsAre("whole after share on GPU-n-0"));
}

TEST_F(OverassignedTest, DeletedPodsAndGuessedGpusDoNotCount) {
  kube::PodObject older = Bind("older", 1, {});
  Bind("newer", 2, {});
  older.meta.deleting = true;
  ledger_->SetPod(older);
  EXPECT_THAT(Found(), IsEmpty());
  ledger_->SetPod(BoundPod(GpuPod("guessed", {{names::kResourceGpu, "1"}}), "n", {}));
  ledger_->SetPod(BoundPod(GpuPod("guessed2", {{names::kResourceGpu, "1"}}), "n", {}));
  EXPECT_THAT(Found(), IsEmpty());
}

// The pod bypassed the scheduler, and one of its containers has started.
TEST_F(OverassignedTest, TheAssignedGpusOfAPartlyGuessedPodCount) {
  kube::PodObject pod = GpuPod("older", {{names::kResourceGpu, "1"}});
  pod.containers.push_back(pod.containers[0]);
  pod.containers[1].name = "second";
  pod.scheduled_at = WallTime(std::chrono::seconds(1));
  const device::Assignment of_main{{{"main", {{UuidOf("n", 0), kWholeGpu, GiB(80)}}}}};
  ledger_->SetPod(BoundPod(
      pod, "n",
      {{std::string(names::kAnnotationAssignment), device::EncodeAssignment(of_main).value()}}));
  ASSERT_TRUE(ledger_->pods().begin()->second.guessed());
  Bind("on-the-guessed", 2, {.gpu = 1});
  Bind("on-the-other", 3, {});
  EXPECT_THAT(Found(), ElementsAre("on-the-other after older on GPU-n-0"));
}

}  // namespace
}  // namespace tessera::ledger
