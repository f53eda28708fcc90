// SPDX-License-Identifier: Apache-2.0
#include "src/kube/testing/json_patch.h"

#include "src/base/strings.h"

namespace tessera::kube::testing {
namespace {

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

Json* Descend(Json* at, const std::string& key) {
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
    at = Descend(at, Unescape(parts[i]));
    if (at == nullptr) return Error(Code::kInvalidArgument, "{}: the parent does not exist", path);
  }
  const std::string key = Unescape(parts.back());
  if (!at->is_object()) return Error(Code::kInvalidArgument, "{}: not in an object", path);
  if (op == "add") {
    at->Set(key, *operation.Find("value"));
    return Status::Ok();
  }
  const Json* found = at->Find(key);
  if (found == nullptr)
    return Error(Code::kInvalidArgument, "{} {}: the member does not exist", op, path);
  if (op == "test" && *found == *operation.Find("value")) return Status::Ok();
  if (op != "remove") return Error(Code::kInvalidArgument, "{} {}: the values differ", op, path);
  at->Erase(key);
  return Status::Ok();
}

}  // namespace

Result<Json> ApplyPatch(Json document, const Json::Array& patch) {
  for (const Json& operation : patch) RETURN_IF_ERROR(Apply(&document, operation));
  return document;
}

}  // namespace tessera::kube::testing
