// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/shared_secret.h"

#include <utility>

#include "src/formats/base64.h"

namespace tessera::certificates {
namespace {

SharedSecret::Content ContentOf(const Json& secret) {
  SharedSecret::Content found{.exists = true};
  if (const Json* metadata = secret.Find("metadata")) {
    found.resource_version = metadata->StringAt("resourceVersion").value_or("");
  }
  const Json* data = secret.Find("data");
  if (data == nullptr || !data->is_object()) return found;
  for (const auto& [key, value] : data->members()) {
    auto text = Base64Decode(data->StringAt(key).value_or(""));
    if (text.ok()) found.data.emplace(key, *std::move(text));
  }
  return found;
}

}  // namespace

std::string SharedSecret::Content::Text(std::string_view key) const { return ValueAt(data, key); }

SharedSecret::SharedSecret(kube::Client& client, std::string ns, std::string name)
    : client_(client), object_{kube::kSecrets, std::move(name), std::move(ns), ""} {}

kube::Operation SharedSecret::Read(std::function<void(const Result<Content>&)> on_done) const {
  return client_.Get(object_, [on_done = std::move(on_done)](const Result<Json>& answer) {
    if (answer.ok()) return on_done(ContentOf(*answer));
    if (answer.status().code() == Code::kNotFound) return on_done(Content());
    on_done(answer.status());
  });
}

kube::Operation SharedSecret::Write(const Content& found, const StringMap& texts,
                                    std::function<void(const Status&)> on_done) const {
  Json data = Json::MakeObject();
  for (const auto& [key, text] : texts) {
    // In a merge patch null removes the key.
    if (found.exists || !text.empty()) {
      data.Set(key, text.empty() ? Json() : Json::String(Base64Encode(text)));
    }
  }
  auto on_answer = [on_done = std::move(on_done)](const Result<Json>& answer) {
    on_done(answer.status());
  };
  if (found.exists) {
    // With a resourceVersion a merge patch fails on a conflict, like an update.
    const Json patch = Json::MakeObject(
        {{"metadata",
          Json::MakeObject({{"resourceVersion", Json::String(found.resource_version)}})},
         {"data", std::move(data)}});
    return client_.Patch(object_, kube::PatchKind::kMerge, patch, {}, std::move(on_answer));
  }
  Json secret = kube::NewObject(object_, "Secret");
  secret.Set("type", Json::String("Opaque"));
  secret.Set("data", std::move(data));
  return client_.Create(object_, secret, std::move(on_answer));
}

bool IsWriteConflict(const Status& status) {
  return status.code() == Code::kAborted || status.code() == Code::kAlreadyExists;
}

}  // namespace tessera::certificates
