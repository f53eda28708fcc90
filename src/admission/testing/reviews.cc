// SPDX-License-Identifier: Apache-2.0
#include "src/admission/testing/reviews.h"

#include <utility>

namespace tessera::admission::testing {

Json PodJson(const StringMap& limits, const StringMap& annotations) {
  Json container =
      Json::MakeObject({{"name", Json::String("main")},
                        {"image", Json::String("x")},
                        {"resources", Json::MakeObject({{"limits", Json::StringObject(limits)}})}});
  Json metadata = Json::MakeObject({{"name", Json::String("p")}});
  if (!annotations.empty()) metadata.Set("annotations", Json::StringObject(annotations));
  return Json::MakeObject(
      {{"apiVersion", Json::String("v1")},
       {"kind", Json::String("Pod")},
       {"metadata", std::move(metadata)},
       {"spec", Json::MakeObject({{"containers", Json::MakeArray({std::move(container)})}})}});
}

AdmissionRequest CreateOf(Json pod) {
  return {.uid = Uid("u-1"),
          .operation = "CREATE",
          .resource = "pods",
          .ns = "ml",
          .user = "alice",
          .object = std::move(pod)};
}

AdmissionRequest UpdateOf(Json before, Json after) {
  AdmissionRequest request = CreateOf(std::move(after));
  request.operation = "UPDATE";
  request.old_object = std::move(before);
  return request;
}

std::string ReviewOf(const AdmissionRequest& request) {
  Json body = Json::MakeObject(
      {{"uid", Json::String(request.uid.str())},
       {"operation", Json::String(request.operation)},
       {"resource", Json::MakeObject({{"group", Json::String(request.group)},
                                      {"version", Json::String("v1")},
                                      {"resource", Json::String(request.resource)}})},
       {"namespace", Json::String(request.ns)},
       {"userInfo", Json::MakeObject({{"username", Json::String(request.user)}})},
       {"object", request.object},
       {"oldObject", request.old_object}});
  if (!request.subresource.empty()) body.Set("subResource", Json::String(request.subresource));
  return Json::MakeObject({{"kind", Json::String("AdmissionReview")},
                           {"apiVersion", Json::String("admission.k8s.io/v1")},
                           {"request", std::move(body)}})
      .Serialize();
}

}  // namespace tessera::admission::testing
