// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/granted_annotations.h"

#include <gmock/gmock.h>

#include "api/names.h"
#include "src/agent/kubelet/testing/four_gpus.h"
#include "src/agent/pods/testing/fake_pods.h"

namespace tessera::agent {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr int64_t kFirst = 1'000;
constexpr int64_t kLater = 2'000;

class GrantedAnnotationsTest : public ::testing::Test {
 protected:
  static StringMap Mem(const std::string& gib) {
    return {{std::string(names::kResourceGpuMem), gib}};
  }
  static StringMap Core() {
    return {{std::string(names::kResourceVcudaCore), "50"},
            {std::string(names::kResourceVcudaMemory), "16"}};
  }
  // Assigns GPU-1 to each container of the pod except `without`.
  device::Assignment OnGpu1(const PodInfo& pod, const std::string& without = "") const {
    device::Assignment assignment;
    for (const device::ContainerRequest& container : pod.request->containers) {
      if (container.name == without) continue;
      assignment.containers[container.name] = {
          *device::ShareOn(container, gpus_->inventory(), "GPU-1")};
    }
    return assignment;
  }
  StringMap After(const PodInfo& pod, const device::Assignment* chosen,
                  int64_t now_ns = kFirst) const {
    return AnnotationsAfterGrant(pod, chosen, gpus_->inventory(), device::MemoryUnit::kGiB,
                                 "node-1", now_ns);
  }
  // The pod once the annotations are written on it.
  static PodInfo With(PodInfo pod, const StringMap& annotations) {
    for (const auto& [key, value] : annotations) pod.annotations[key] = value;
    return pod;
  }

  const std::shared_ptr<const DeviceSet> gpus_ = FourGpus();
};

TEST_F(GrantedAnnotationsTest, WritesTheAgentsChoiceAsTesserasAndGpusharesAnnotations) {
  const PodInfo pod = FakeApiPods::Make("a", {{"main", Mem("8")}});
  const device::Assignment chosen = OnGpu1(pod);
  const StringMap after = After(pod, &chosen);
  EXPECT_EQ(after.at(std::string(names::kAnnotationAssignment)),
            device::EncodeAssignment(chosen).value());
  EXPECT_EQ(after.at(std::string(names::kAnnotationGpuMemIndex)), "1");
  EXPECT_EQ(after.at(std::string(names::kAnnotationGpuMemAssumeTime)), std::to_string(kFirst));
  EXPECT_EQ(after.at(std::string(names::kAnnotationGpuMemAssigned)), "true");
  EXPECT_FALSE(after.contains(names::kAnnotationGpuAssigned));
}

TEST_F(GrantedAnnotationsTest, WritesTheAgentsChoiceAsGpuManagersAnnotations) {
  const PodInfo pod = FakeApiPods::Make("a", {{"main", Core()}});
  const device::Assignment chosen = OnGpu1(pod);
  const StringMap after = After(pod, &chosen);
  EXPECT_EQ(after.at(std::string(names::kAnnotationPredicateNode)), "node-1");
  EXPECT_EQ(after.at(std::string(names::kAnnotationGpuAssigned)), "true");
  EXPECT_FALSE(after.contains(names::kAnnotationGpuMemAssigned));
}

TEST_F(GrantedAnnotationsTest, AScheduledPodIsOnlyMarkedAsAssigned) {
  PodInfo pod = FakeApiPods::Make("a", {{"main", Mem("8")}});
  pod.annotations = {{std::string(names::kAnnotationGpuMemIndex), "1"},
                     {std::string(names::kAnnotationGpuMemAssigned), "false"}};
  EXPECT_THAT(After(pod, nullptr),
              UnorderedElementsAre(Pair(names::kAnnotationGpuMemAssigned, "true")));
  pod.annotations = {{std::string(names::kAnnotationGpuAssigned), "false"}};
  EXPECT_THAT(After(pod, nullptr),
              UnorderedElementsAre(Pair(names::kAnnotationGpuAssigned, "true")));
}

TEST_F(GrantedAnnotationsTest, APodThatUsesNeitherOlderDialectGetsNoAnnotations) {
  PodInfo pod = FakeApiPods::Make("a", {{"main", {{std::string(names::kResourceGpu), "1"}}}});
  pod.annotations = {{std::string(names::kAnnotationAssignment), "whatever"}};
  EXPECT_THAT(After(pod, nullptr), IsEmpty());
}

TEST_F(GrantedAnnotationsTest, WritesAnAnnotationOnceAndKeepsTheFirstTime) {
  for (const StringMap& limits : {Mem("8"), Core()}) {
    const PodInfo pod = FakeApiPods::Make("a", {{"main", limits}});
    const device::Assignment chosen = OnGpu1(pod);
    const StringMap first = After(pod, &chosen);
    EXPECT_FALSE(first.empty());
    EXPECT_THAT(After(With(pod, first), &chosen, kLater), IsEmpty());
  }
}

TEST_F(GrantedAnnotationsTest, ATimeWithoutAnAssignmentIsReplaced) {
  const std::string time(names::kAnnotationGpuMemAssumeTime);
  const PodInfo pod = FakeApiPods::Make("a", {{"main", Mem("8")}});
  const device::Assignment chosen = OnGpu1(pod);
  EXPECT_EQ(After(With(pod, {{time, "7"}}), &chosen).at(time), std::to_string(kFirst));
}

TEST_F(GrantedAnnotationsTest, ADifferentValueOfAnAssignedPodIsReplaced) {
  const PodInfo pod = FakeApiPods::Make("a", {{"main", Mem("8")}});
  const device::Assignment chosen = OnGpu1(pod);
  PodInfo written = With(pod, After(pod, &chosen));
  written.annotations[std::string(names::kAnnotationGpuMemIndex)] = "3";
  EXPECT_THAT(After(written, &chosen, kLater),
              UnorderedElementsAre(Pair(names::kAnnotationGpuMemIndex, "1")));
}

TEST_F(GrantedAnnotationsTest, WhileContainersAreMissingOnlyTesserasAnnotationIsWritten) {
  const PodInfo pod = FakeApiPods::Make("a", {{"main", Mem("8")}, {"second", Mem("4")}});
  const device::Assignment chosen = OnGpu1(pod, "second");
  EXPECT_THAT(After(pod, &chosen),
              UnorderedElementsAre(
                  Pair(names::kAnnotationAssignment, device::EncodeAssignment(chosen).value())));
}

TEST_F(GrantedAnnotationsTest, APodWithAnInvalidRequestGetsOnlyTesserasAnnotation) {
  PodInfo pod = FakeApiPods::Make("a", {{"main", Mem("8")}});
  const device::Assignment chosen = OnGpu1(pod);
  pod.request = Status(Code::kInvalidArgument, "two dialects in one container");
  EXPECT_THAT(After(pod, &chosen),
              UnorderedElementsAre(
                  Pair(names::kAnnotationAssignment, device::EncodeAssignment(chosen).value())));
}

}  // namespace
}  // namespace tessera::agent
