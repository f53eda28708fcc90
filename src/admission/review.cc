// SPDX-License-Identifier: Apache-2.0
#include "src/admission/review.h"

#include <algorithm>

#include "src/base/strings.h"
#include "src/formats/base64.h"

namespace tessera::admission {
namespace {

constexpr std::string_view kVersion = "admission.k8s.io/v1";
constexpr std::string_view kKind = "AdmissionReview";
// The API server drops warnings beyond 4 KiB in total, and truncates each at 256 characters.
constexpr size_t kMaxWarningBytes = 256;
constexpr size_t kMaxWarnings = 12;

// "" if the member is missing or null.
Result<std::string> OptionalText(const Json& object, std::string_view key) {
  const Json* found = object.Find(key);
  if (found == nullptr || found->is_null()) return std::string();
  return object.StringAt(key);
}

Json ObjectOrNull(const Json& request, std::string_view key) {
  const Json* found = request.Find(key);
  return found == nullptr ? Json() : *found;
}

Status CheckType(const Json& review) {
  if (!review.is_object()) {
    return Error(Code::kInvalidArgument, "{} instead of an AdmissionReview",
                 KindName(review.kind()));
  }
  ASSIGN_OR_RETURN(const std::string version, OptionalText(review, "apiVersion"));
  ASSIGN_OR_RETURN(const std::string kind, OptionalText(review, "kind"));
  if (kind == kKind && version == kVersion) return Status::Ok();
  return Error(Code::kInvalidArgument,
               "unsupported kind \"{}\" of \"{}\": send {} of {} (admissionReviewVersions: [v1])",
               TruncateUtf8(kind, 64), TruncateUtf8(version, 64), kKind, kVersion);
}

// The API server sends warnings as HTTP headers, which hold no line breaks.
std::string WarningText(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return TruncateUtf8(std::move(text), kMaxWarningBytes);
}

Json StatusOf(const Status& rejection) {
  // A violated rule has reason Invalid, like a field that the API server itself rejects.
  const bool invalid = rejection.code() == Code::kInvalidArgument;
  return Json::MakeObject(
      {{"status", Json::String("Failure")},
       {"code", Json::Int(invalid ? 422 : InfoOf(rejection.code()).http_status)},
       {"reason", Json::String(invalid ? "Invalid" : "Forbidden")},
       {"message", Json::String(rejection.message())}});
}

}  // namespace

Result<AdmissionRequest> ParseAdmissionReview(std::string_view body) {
  ASSIGN_OR_RETURN(const Json review, ParseJson(body, {.max_bytes = kMaxAdmissionBytes}));
  RETURN_IF_ERROR(CheckType(review));
  const Json* request = review.Find("request");
  if (request == nullptr || !request->is_object()) {
    return Error(Code::kInvalidArgument, "the AdmissionReview has no request");
  }
  AdmissionRequest out;
  ASSIGN_OR_RETURN(std::string uid, request->StringAt("uid"));
  out.uid = Uid(std::move(uid));
  ASSIGN_OR_RETURN(out.operation, request->StringAt("operation"));
  const Json* resource = request->Find("resource");
  if (resource == nullptr || !resource->is_object()) {
    return Error(Code::kInvalidArgument, "request.resource is missing");
  }
  ASSIGN_OR_RETURN(out.group, OptionalText(*resource, "group"));
  ASSIGN_OR_RETURN(out.resource, resource->StringAt("resource"));
  ASSIGN_OR_RETURN(out.subresource, OptionalText(*request, "subResource"));
  ASSIGN_OR_RETURN(out.ns, OptionalText(*request, "namespace"));
  if (const Json* user = request->Find("userInfo"); user != nullptr && user->is_object()) {
    ASSIGN_OR_RETURN(out.user, OptionalText(*user, "username"));
  }
  out.object = ObjectOrNull(*request, "object");
  out.old_object = ObjectOrNull(*request, "oldObject");
  return out;
}

std::string SerializeAdmissionReview(const Uid& uid, const AdmissionAnswer& answer) {
  Json response = Json::MakeObject(
      {{"uid", Json::String(uid.str())}, {"allowed", Json::Bool(answer.rejection.ok())}});
  if (!answer.rejection.ok()) response.Set("status", StatusOf(answer.rejection));
  if (answer.rejection.ok() && !answer.patch.empty()) {
    response.Set("patchType", Json::String("JSONPatch"));
    response.Set("patch", Json::String(Base64Encode(Json::MakeArray(answer.patch).Serialize())));
  }
  if (!answer.warnings.empty()) {
    Json warnings = Json::MakeArray();
    for (const std::string& warning : answer.warnings) {
      if (warnings.items().size() == kMaxWarnings) break;
      warnings.Append(Json::String(WarningText(warning)));
    }
    response.Set("warnings", std::move(warnings));
  }
  return Json::MakeObject({{"apiVersion", Json::String(kVersion)},
                           {"kind", Json::String(kKind)},
                           {"response", std::move(response)}})
      .Serialize();
}

}  // namespace tessera::admission
