// SPDX-License-Identifier: Apache-2.0
#include "src/admission/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/admission/testing/reviews.h"
#include "src/base/random.h"
#include "src/kube/testing/json_patch.h"

namespace tessera::admission {
namespace {

using kube::testing::ApplyPatch;
using ::testing::AllOf;
using testing::CreateOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PodJson;
using testing::UpdateOf;

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionRules MakeRules(AdmissionOptions options = {}) const {
    return AdmissionRules(std::move(options), [this] { return capacity_; });
  }
  std::string RejectionOf(const Json& pod) const {
    const AdmissionAnswer answer = MakeRules().Validate(CreateOf(pod));
    EXPECT_TRUE(answer.patch.empty());
    return answer.rejection.message();
  }
  std::vector<std::string> WarningsOf(const Json& pod) const {
    const AdmissionAnswer answer = MakeRules().Validate(CreateOf(pod));
    EXPECT_TRUE(answer.rejection.ok()) << answer.rejection.ToString();
    return answer.warnings;
  }

  const ClusterCapacity* capacity_ = nullptr;
};

// Every rule of docs/reference/admission.md, with the messages that users get.
TEST_F(AdmissionTest, ARequestThatBreaksARuleIsRejectedWithTheRule) {
  const struct {
    StringMap limits;
    const char* says;
  } cases[] = {
      {{{"tencent.com/vcuda-core", "150"}, {"tencent.com/vcuda-memory", "20"}},
       "150 is neither 1 to 99 nor a multiple of 100: request 100 or 200"},
      {{{"tencent.com/vcuda-core", "30"}}, "vcuda-memory: is missing or 0 beside"},
      {{{"tencent.com/vcuda-memory", "20"}}, "vcuda-core: is missing or 0 beside"},
      {{{"aliyun.com/gpu-mem", "8"}, {"nvidia.com/gpu", "1"}}, "keep one of them"},
      {{{"nvidia.com/gpu", "1500m"}}, "\"1500m\" is not a whole number"},
      {{{"nvidia.com/gpu", "2000"}}, "more than any node has"},
      {{{"aliyun.com/gpu-mem", "9999999"}}, "more than any GPU has"},
  };
  for (const auto& test : cases) {
    EXPECT_THAT(RejectionOf(PodJson(test.limits)),
                AllOf(HasSubstr(test.says), HasSubstr("container \"main\"")));
  }
  EXPECT_THAT(RejectionOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/policy", "best"}})),
              HasSubstr("\"best\" is not a policy"));
  EXPECT_THAT(RejectionOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/gpu-models", " , "}})),
              HasSubstr("is empty"));
}

TEST_F(AdmissionTest, ValidRequestsPassWithoutAWarning) {
  for (const StringMap& limits :
       {StringMap{{"nvidia.com/gpu", "8"}}, StringMap{{"aliyun.com/gpu-mem", "8"}},
        StringMap{{"tencent.com/vcuda-core", "30"}, {"tencent.com/vcuda-memory", "20"}},
        StringMap{{"tencent.com/vcuda-core", "200"}}, StringMap{{"cpu", "1"}}, StringMap{}}) {
    EXPECT_THAT(WarningsOf(PodJson(limits)), IsEmpty());
    const AdmissionAnswer answer = MakeRules().Mutate(CreateOf(PodJson(limits)));
    EXPECT_TRUE(answer.rejection.ok() && answer.patch.empty() && answer.warnings.empty());
  }
}

TEST_F(AdmissionTest, OversizedAnnotationsAreRejected) {
  const std::string big(kMaxConstraintBytes / 2 + 1, 'x');
  const Json pod = PodJson({{"nvidia.com/gpu", "1"}},
                           {{"tessera.dev/gpu-models", big}, {"tessera.dev/gpu-uuids", big}});
  EXPECT_THAT(RejectionOf(pod), AllOf(HasSubstr("tessera.dev/gpu-uuids"), HasSubstr("16384")));
  EXPECT_EQ(RejectionOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/gpu-uuids", big}})), "");
}

TEST_F(AdmissionTest, AnnotationsUpToTheLimitPassAndForeignAnnotationsDoNotCount) {
  const StringMap limits{{"nvidia.com/gpu", "1"}};
  const std::string most(kMaxConstraintBytes, 'x');
  EXPECT_EQ(RejectionOf(PodJson(limits, {{"tessera.dev/gpu-uuids", most}})), "");
  EXPECT_THAT(RejectionOf(PodJson(limits, {{"tessera.dev/gpu-uuids", most + "x"}})),
              HasSubstr("tessera.dev/gpu-uuids"));
  EXPECT_EQ(RejectionOf(PodJson(limits, {{"mine/own", most + "x"}})), "");
}

TEST_F(AdmissionTest, WarnsOfAnnotationsWithoutEffect) {
  EXPECT_THAT(
      WarningsOf(PodJson({{"tencent.com/vcuda-core", "100"}, {"tencent.com/vcuda-memory", "5"}})),
      ElementsAre(HasSubstr("vcuda-memory has no effect beside whole GPUs")));
  EXPECT_THAT(WarningsOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/gpu-model", "A100"}})),
              ElementsAre(HasSubstr("unknown annotation tessera.dev/gpu-model")));
  EXPECT_THAT(
      WarningsOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/memory-limit", "8 Gi"}})),
      ElementsAre(HasSubstr("tessera.dev/memory-limit has no effect: \"8 Gi\"")));
  EXPECT_THAT(WarningsOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/memory-limit", "8Gi"}})),
              ElementsAre());
  EXPECT_THAT(
      WarningsOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/compute-limit", "0.2"}})),
      ElementsAre(HasSubstr("tessera.dev/compute-limit has no effect: \"0.2\"")));
  const StringMap core{{"tencent.com/vcuda-core", "30"}, {"tencent.com/vcuda-memory", "5"}};
  EXPECT_THAT(
      WarningsOf(PodJson(core, {{"tessera.dev/compute-class", "urgent"}})),
      ElementsAre(HasSubstr("tessera.dev/compute-class has no effect: \"urgent\" is none of "
                            "high, normal, low")));
  EXPECT_THAT(WarningsOf(PodJson(core, {{"tessera.dev/compute-class", "low"}})), IsEmpty());
  EXPECT_THAT(
      WarningsOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/compute-class", "low"}})),
      ElementsAre(HasSubstr("no container requests tencent.com/vcuda-core below 100")));
  EXPECT_THAT(WarningsOf(PodJson({{"aliyun.com/gpu-mem", "4"}},
                                 {{"tessera.dev/memory-limit", "nosuch=1Gi"}})),
              ElementsAre(HasSubstr("has no effect: the pod has no container \"nosuch\"")));
  EXPECT_THAT(
      WarningsOf(PodJson({{"aliyun.com/gpu-mem", "4"}}, {{"tessera.dev/memory-limit", "99Gi"}})),
      ElementsAre(HasSubstr("tessera.dev/memory-limit has no effect: 101376 MiB is more than the "
                            "4096 MiB that the container requests")));
  EXPECT_THAT(
      WarningsOf(PodJson({{"aliyun.com/gpu-mem", "4"}}, {{"tessera.dev/memory-limit", "4Gi"}})),
      IsEmpty());
  EXPECT_THAT(WarningsOf(PodJson(core, {{"tessera.dev/compute-limit", "40"}})),
              ElementsAre(HasSubstr("40 hundredths is more than the 30 hundredths")));
  EXPECT_THAT(WarningsOf(PodJson({}, {{"tessera.dev/gpu-models", "A100"}})),
              ElementsAre(HasSubstr("no container requests GPUs")));
  EXPECT_THAT(
      WarningsOf(PodJson({{"nvidia.com/gpu", "1"}}, {{"tencent.com/vcuda-core-limit", "50"}})),
      ElementsAre(HasSubstr("no container requests tencent.com/vcuda-core below 100")));
  const StringMap share{{"tencent.com/vcuda-core", "30"}, {"tencent.com/vcuda-memory", "5"}};
  EXPECT_THAT(
      WarningsOf(PodJson(share, {{"tencent.com/vcuda-core-limit", "20"}})),
      ElementsAre(HasSubstr(
          "20 is less than the 30 of tencent.com/vcuda-core that the container requests, so the "
          "container gets 30")));
  EXPECT_THAT(WarningsOf(PodJson(share, {{"tencent.com/vcuda-core-limit", "30"}})), IsEmpty());
  EXPECT_THAT(WarningsOf(PodJson({{"aliyun.com/gpu-count", "1"}})),
              ElementsAre(HasSubstr("aliyun.com/gpu-count is the number of GPUs of a node")));
}

TEST_F(AdmissionTest, WarnsOfAVcudaLimitOnAPodWithoutAVcudaShare) {
  const StringMap limit{{"tencent.com/vcuda-core-limit", "50"}};
  const auto no_effect = ElementsAre(
      HasSubstr("annotation tencent.com/vcuda-core-limit has no effect: no container requests"));
  EXPECT_THAT(WarningsOf(PodJson({{"tencent.com/vcuda-core", "200"}}, limit)), no_effect);
  EXPECT_THAT(WarningsOf(PodJson({{"aliyun.com/gpu-mem", "8"}}, limit)), no_effect);
  // The limit is not compared with whole GPUs or with shares by memory.
  const StringMap low{{"tencent.com/vcuda-core-limit", "1"}};
  EXPECT_THAT(WarningsOf(PodJson({{"tencent.com/vcuda-core", "100"}}, low)), no_effect);
  EXPECT_THAT(WarningsOf(PodJson({{"aliyun.com/gpu-mem", "8"}}, low)), no_effect);
}

TEST_F(AdmissionTest, WarnsIfNvidiaVisibleDevicesIsSetWithoutAGpuRequest) {
  const auto with_env = [](Json pod, const char* value) {
    Json& container = pod.Find("spec")->Find("containers")->items()[0];
    container.Set(
        "env", Json::MakeArray({Json::MakeObject({{"name", Json::String("NVIDIA_VISIBLE_DEVICES")},
                                                  {"value", Json::String(value)}})}));
    return pod;
  };
  EXPECT_THAT(WarningsOf(with_env(PodJson({}), "all")), ElementsAre(HasSubstr("gives no GPU")));
  EXPECT_THAT(WarningsOf(with_env(PodJson({}), "void")), IsEmpty());
  // The sample of gpushare has both the limit and the variable; the limit gives it a GPU.
  EXPECT_THAT(WarningsOf(with_env(PodJson({{"aliyun.com/gpu-mem", "8"}}), "all")), IsEmpty());
}

TEST_F(AdmissionTest, ForgedAssignmentsAreRemovedAtCreation) {
  const Json pod =
      PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/assignment", std::string(100'000, 'x')},
                                          {"ALIYUN_COM_GPU_MEM_IDX", "0"},
                                          {"tencent.com/predicate-gpu-idx-0", "0"},
                                          {"tencent.com/gpu-assigned", "true"},
                                          {"tessera.dev/policy", "spread"},
                                          {"mine/own", "stays"}});
  const AdmissionAnswer answer = MakeRules().Mutate(CreateOf(pod));
  ASSERT_TRUE(answer.rejection.ok());
  EXPECT_THAT(answer.warnings, ElementsAre(HasSubstr("ALIYUN_COM_GPU_MEM_IDX")));
  const auto patched = ApplyPatch(pod, answer.patch);
  ASSERT_TRUE(patched.ok()) << patched.status().ToString();
  EXPECT_EQ(*patched, PodJson({{"nvidia.com/gpu", "1"}},
                              {{"tessera.dev/policy", "spread"}, {"mine/own", "stays"}}));
}

TEST_F(AdmissionTest, AnUpdateOrAMirrorPodIsLeftAlone) {
  const Json pod = PodJson({{"tencent.com/vcuda-core", "150"}},
                           {{"tessera.dev/assignment", "x"}, {"kubernetes.io/config.mirror", "h"}});
  EXPECT_TRUE(MakeRules().Mutate(UpdateOf(pod, pod)).patch.empty());
  AdmissionRequest mirror = CreateOf(pod);
  mirror.user = "system:node:n1";
  EXPECT_TRUE(MakeRules().Mutate(mirror).patch.empty());
  EXPECT_TRUE(MakeRules().Validate(mirror).rejection.ok());
  // Any user may write that annotation; it counts only from a kubelet.
  EXPECT_FALSE(MakeRules().Mutate(CreateOf(pod)).patch.empty());
  EXPECT_FALSE(MakeRules().Validate(CreateOf(pod)).rejection.ok());
}

TEST_F(AdmissionTest, AnUpdateIsJudgedByItsChanges) {
  const StringMap limits{{"nvidia.com/gpu", "1"}};
  const Json good = PodJson(limits), bad = PodJson(limits, {{"tessera.dev/policy", "best"}});
  EXPECT_TRUE(MakeRules().Validate(UpdateOf(good, good)).rejection.ok());
  EXPECT_FALSE(MakeRules().Validate(UpdateOf(good, bad)).rejection.ok());
  EXPECT_TRUE(MakeRules().Validate(UpdateOf(bad, good)).rejection.ok());
  // The pod is older than the webhook: changes of its finalizers and labels must be allowed.
  EXPECT_TRUE(MakeRules().Validate(UpdateOf(bad, bad)).rejection.ok());
  Json leaving = bad;
  leaving.Find("metadata")->Set("deletionTimestamp", Json::String("2026-01-01T00:00:00Z"));
  EXPECT_TRUE(MakeRules().Validate(UpdateOf(good, leaving)).rejection.ok());
}

TEST_F(AdmissionTest, SetsTheConfiguredRuntimeClassUnlessThePodNamesOne) {
  const AdmissionRules rules = MakeRules({.runtime_class = "nvidia"});
  const Json pod = PodJson({{"nvidia.com/gpu", "1"}});
  const auto patched = ApplyPatch(pod, rules.Mutate(CreateOf(pod)).patch);
  ASSERT_TRUE(patched.ok());
  EXPECT_EQ(patched->Find("spec")->StringAt("runtimeClassName").value(), "nvidia");
  Json other = pod;
  other.Find("spec")->Set("runtimeClassName", Json::String("gvisor"));
  EXPECT_TRUE(rules.Mutate(CreateOf(other)).patch.empty());
  EXPECT_TRUE(rules.Mutate(CreateOf(PodJson({{"cpu", "1"}}))).patch.empty());
  EXPECT_TRUE(MakeRules().Mutate(CreateOf(pod)).patch.empty());
}

TEST_F(AdmissionTest, WarnsOfAPodThatCanNeverBePlaced) {
  ClusterCapacity capacity;
  capacity.models["Tesla T4"] = {.largest_memory = MiB(15109), .most_on_node = 4};
  capacity.most_on_node = 4;
  capacity_ = &capacity;
  EXPECT_THAT(WarningsOf(PodJson({{"aliyun.com/gpu-mem", "15"}})),
              ElementsAre(AllOf(HasSubstr("the pod will wait: "), HasSubstr("14 GiB"))));
  EXPECT_THAT(WarningsOf(PodJson({{"aliyun.com/gpu-mem", "14"}})), IsEmpty());
}

TEST_F(AdmissionTest, OtherObjectsThanPodsPass) {
  AdmissionRequest request = CreateOf(PodJson({{"tencent.com/vcuda-core", "150"}}));
  request.resource = "deployments";
  request.group = "apps";
  for (const AdmissionAnswer& answer :
       {MakeRules().Mutate(request), MakeRules().Validate(request)}) {
    EXPECT_TRUE(answer.rejection.ok() && answer.patch.empty());
    EXPECT_THAT(answer.warnings, ElementsAre(HasSubstr("correct the webhook's rules")));
  }
  request = CreateOf(PodJson({}));
  request.subresource = "status";
  EXPECT_TRUE(MakeRules().Validate(request).rejection.ok());
  request.object = Json();
  request.subresource.clear();
  EXPECT_TRUE(MakeRules().Mutate(request).patch.empty());
}

// The API server calls a webhook again if a later webhook has changed the pod, and may retry calls.
TEST_F(AdmissionTest, ApplyingAPatchTwiceEqualsApplyingItOnce) {
  const AdmissionRules rules = MakeRules({.runtime_class = "nvidia"});
  const char* keys[] = {"tessera.dev/assignment",
                        "ALIYUN_COM_GPU_MEM_A/~b",
                        "tencent.com/predicate-~1",
                        "tencent.com/gpu-assigned",
                        "tessera.dev/policy",
                        "a/b",
                        "~",
                        "/",
                        ""};
  const char* resources[] = {"nvidia.com/gpu", "aliyun.com/gpu-mem", "tencent.com/vcuda-core",
                             "cpu"};
  const char* values[] = {"1", "100", "150", "spread", "x"};
  Random random(7);
  int changed = 0;
  for (int round = 0; round < 5000; ++round) {
    StringMap limits, annotations;
    for (uint64_t n = random.Below(3); n > 0; --n)
      limits[resources[random.Below(4)]] = values[random.Below(5)];
    for (uint64_t n = random.Below(6); n > 0; --n)
      annotations[keys[random.Below(9)]] = values[random.Below(5)];
    Json pod = PodJson(limits, annotations);
    if (random.Below(4) == 0) pod.Find("spec")->Set("runtimeClassName", Json());
    const AdmissionAnswer first = rules.Mutate(CreateOf(pod));
    const auto once = ApplyPatch(pod, first.patch);
    ASSERT_TRUE(once.ok()) << once.status().ToString() << pod.Serialize();
    ASSERT_TRUE(rules.Mutate(CreateOf(*once)).patch.empty()) << once->Serialize();
    changed += first.patch.empty() ? 0 : 1;
  }
  EXPECT_GT(changed, 1000);
}

}  // namespace
}  // namespace tessera::admission
