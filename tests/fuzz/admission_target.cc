// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "src/admission/rules.h"
#include "src/admission/testing/reviews.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/kube/testing/json_patch.h"
#include "tests/fuzz/pod_text.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

using admission::AdmissionAnswer;
using admission::AdmissionRequest;
using admission::AdmissionRules;

placement::Quota SomeQuota() {
  placement::Quota quota;
  quota.SetConfig(
      placement::ParseQuota(R"({"ml":{"quota":{"A100":2},"pool":["public"]}})").value());
  return quota;
}

// Two nodes of four GPUs, and a quota for the namespace of the seeds.
const admission::ClusterCapacity& Capacity() {
  static const auto* capacity = new admission::ClusterCapacity{
      .models = {{"NVIDIA A100-SXM4-80GB", {.largest_memory = GiB(80), .most_on_node = 4}},
                 {"Tesla T4", {.largest_memory = MiB(15109), .most_on_node = 4}}},
      .most_on_node = 4,
      .mig_profiles = {"1g.10gb"},
      .quota_keys = {{"NVIDIA A100-SXM4-80GB", ""}, {"Tesla T4", "public"}},
      .quota = SomeQuota()};
  return *capacity;
}

// Checks the parts of the answer that the API server reads.
void CheckAnswer(const AdmissionRequest& request, const AdmissionAnswer& answer) {
  const auto review = ParseJson(admission::SerializeAdmissionReview(request.uid, answer));
  TESSERA_CHECK(review.ok());
  const Json* response = review->Find("response");
  TESSERA_CHECK(response != nullptr && response->StringAt("uid").value() == request.uid.str());
  TESSERA_CHECK(response->BoolAt("allowed").value() == answer.rejection.ok());
  const Json* warnings = response->Find("warnings");
  if (warnings == nullptr) return;
  for (const Json& warning : warnings->items()) {
    const std::string& text = warning.string_value();
    TESSERA_CHECK(text.size() <= 256 && IsValidUtf8(text));
    for (const unsigned char c : text) TESSERA_CHECK(c >= 0x20 && c != 0x7f);
  }
}

// Returns the request that creates the pod described by lines of pod_text.h.
std::string ReviewOfText(std::string_view text) {
  const device::PodSpec pod = ParsePodText(text);
  Json init = Json::MakeArray(), main = Json::MakeArray();
  for (const device::ContainerSpec& container : pod.containers) {
    Json made = Json::MakeObject(
        {{"name", Json::String(container.name)},
         {"resources", Json::MakeObject({{"limits", Json::StringObject(container.limits)},
                                         {"requests", Json::StringObject(container.requests)}})}});
    if (container.phase == device::Phase::kSidecar) {
      made.Set("restartPolicy", Json::String("Always"));
    }
    (container.phase == device::Phase::kMain ? main : init).Append(std::move(made));
  }
  return admission::testing::ReviewOf(admission::testing::CreateOf(Json::MakeObject(
      {{"metadata", Json::MakeObject({{"annotations", Json::StringObject(pod.annotations)}})},
       {"spec", Json::MakeObject(
                    {{"initContainers", std::move(init)}, {"containers", std::move(main)}})}})));
}

void CheckReview(std::string_view body) {
  const auto request = admission::ParseAdmissionReview(body);
  if (!request.ok()) {
    const Code code = request.status().code();
    TESSERA_CHECK(code == Code::kInvalidArgument || code == Code::kResourceExhausted);
    return;
  }
  const AdmissionRules rules({.runtime_class = "nvidia"}, [] { return &Capacity(); });
  CheckAnswer(*request, rules.Validate(*request));
  const AdmissionAnswer mutated = rules.Mutate(*request);
  CheckAnswer(*request, mutated);
  TESSERA_CHECK(mutated.rejection.ok());
  const auto once = kube::testing::ApplyPatch(request->object, mutated.patch);
  TESSERA_CHECK(once.ok());
  AdmissionRequest again = *request;
  again.object = *once;
  TESSERA_CHECK(rules.Mutate(again).patch.empty());
}

}  // namespace

void AdmissionReview(std::string_view input) {
  CheckReview(input);
  if (IsValidUtf8(input)) CheckReview(ReviewOfText(input));
}

}  // namespace tessera::fuzz
