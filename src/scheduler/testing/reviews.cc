// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/testing/reviews.h"

#include <utility>

#include "src/base/strings.h"

namespace tessera::scheduler::testing {
namespace {

Json ObjectOf(const Texts& texts) {
  Json object = Json::MakeObject();
  for (const auto& [key, value] : texts) object.Set(key, Json::String(value));
  return object;
}

std::string Unescape(std::string_view part) {
  std::string out;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '~' || i + 1 == part.size()) {
      out += part[i];
    } else {
      out += part[++i] == '1' ? '/' : '~';
    }
  }
  return out;
}

Json* Step(Json* at, const std::string& key) {
  if (!at->is_array()) return at->Find(key);
  const auto index = ParseInt(key);
  if (!index.ok() || *index < 0 || static_cast<size_t>(*index) >= at->items().size())
    return nullptr;
  return &at->items()[static_cast<size_t>(*index)];
}

Status Apply(Json* document, const Json& operation) {
  const std::string path = operation.StringAt("path").value();
  const std::string op = operation.StringAt("op").value();
  const auto parts = Split(std::string_view(path).substr(1), '/');
  Json* at = document;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    at = Step(at, Unescape(parts[i]));
    if (at == nullptr) return Error(Code::kInvalidArgument, "{}: no such place", path);
  }
  const std::string key = Unescape(parts.back());
  if (!at->is_object()) return Error(Code::kInvalidArgument, "{}: not in an object", path);
  if (op == "add") {
    at->Set(key, *operation.Find("value"));
    return Status::Ok();
  }
  const Json* found = at->Find(key);
  if (found == nullptr) return Error(Code::kInvalidArgument, "{} {}: nothing there", op, path);
  if (op == "test" && *found == *operation.Find("value")) return Status::Ok();
  if (op != "remove") return Error(Code::kInvalidArgument, "{} {}: does not hold", op, path);
  at->Erase(key);
  return Status::Ok();
}

}  // namespace

Json PodJson(const Texts& limits, const Texts& annotations) {
  Json container =
      Json::MakeObject({{"name", Json::String("main")},
                        {"image", Json::String("x")},
                        {"resources", Json::MakeObject({{"limits", ObjectOf(limits)}})}});
  Json metadata = Json::MakeObject({{"name", Json::String("p")}});
  if (!annotations.empty()) metadata.Set("annotations", ObjectOf(annotations));
  return Json::MakeObject(
      {{"apiVersion", Json::String("v1")},
       {"kind", Json::String("Pod")},
       {"metadata", std::move(metadata)},
       {"spec", Json::MakeObject({{"containers", Json::MakeArray({std::move(container)})}})}});
}

AdmissionRequest CreateOf(Json pod) {
  return {.uid = "u-1",
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
      {{"uid", Json::String(request.uid)},
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

Result<Json> ApplyPatch(Json document, const Json::Array& patch) {
  for (const Json& operation : patch) RETURN_IF_ERROR(Apply(&document, operation));
  return document;
}

}  // namespace tessera::scheduler::testing
