// SPDX-License-Identifier: Apache-2.0
#include "src/console/replies.h"

#include <utility>

namespace tessera::console {

net::Response JsonTextResponse(int status, std::string text) {
  return {status,
          {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}},
          std::move(text)};
}

net::Response JsonResponse(const Json& json) { return JsonTextResponse(200, json.Serialize()); }

net::Response ErrorResponse(const Status& status) {
  const CodeInfo& info = InfoOf(status.code());
  return JsonTextResponse(info.http_status,
                          Json::MakeObject({{"code", Json::String(info.name)},
                                            {"error", Json::String(status.message())}})
                              .Serialize());
}

net::Response ResponseOf(const Result<Json>& result) {
  return result.ok() ? JsonResponse(*result) : ErrorResponse(result.status());
}

net::Response MethodNotAllowed(std::string_view allowed) {
  net::Response response =
      ErrorResponse(Error(Code::kUnimplemented, "this path takes only {}", allowed));
  response.status = 405;
  response.headers.Set("Allow", std::string(allowed));
  return response;
}

net::Response FieldErrorsResponse(const FieldErrors& errors) {
  Json fields = Json::MakeObject();
  for (const auto& [field, message] : errors) fields.Set(field, Json::String(message));
  return JsonResponse(Json::MakeObject({{"fields", std::move(fields)}}));
}

Result<Json> BodyOf(const net::Request& request) {
  // Prevents cross-site request forgery: an HTML form of another site can send only three content
  // types, and application/json is not one of them.
  if (!request.headers.Get("Content-Type").starts_with("application/json")) {
    return Error(Code::kInvalidArgument, "the body must have Content-Type application/json");
  }
  ASSIGN_OR_RETURN(Json body, ParseJson(request.body));
  if (!body.is_object()) return Error(Code::kInvalidArgument, "the body must be a JSON object");
  return body;
}

bool IsObjectName(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string_view::npos;
}

bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differences = 0;
  for (size_t i = 0; i < a.size(); ++i) differences |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differences == 0;
}

}  // namespace tessera::console
