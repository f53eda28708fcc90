// SPDX-License-Identifier: Apache-2.0
#include "src/components/edit.h"

#include <algorithm>

namespace tessera::components {

Json& MemberAt(Json& object, std::initializer_list<std::string_view> path) {
  Json* at = &object;
  for (const std::string_view key : path) {
    Json* next = at->Find(key);
    at = next != nullptr ? next : &at->Set(key, Json::MakeObject());
  }
  return *at;
}

Json& ItemNamed(Json& array, std::string_view name) {
  const auto item = std::ranges::find_if(array.items(), [&](const Json& candidate) {
    return candidate.StringAt("name").value_or("") == name;
  });
  TESSERA_CHECK(item != array.items().end());
  return *item;
}

void EraseItemNamed(Json& array, std::string_view name) {
  std::erase_if(array.items(), [&](const Json& candidate) {
    return candidate.StringAt("name").value_or("") == name;
  });
}

void AddMissingTexts(Json& object, const StringMap& texts) {
  for (const auto& [name, text] : texts) {
    if (object.Find(name) == nullptr) object.Set(name, Json::String(text));
  }
}

void AppendItems(Json& array, const Json& items) {
  for (const Json& item : items.items()) array.Append(item);
}

void AppendStrings(Json& array, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) array.Append(Json::String(text));
}

std::string JoinWithCommas(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ","));
}

Json NamedObject(std::string_view name) { return Json::MakeObject({{"name", Json::String(name)}}); }

void SetImage(Json& container, const ImageSettings& image, std::string_view program) {
  container.Set("image", Json::String(fmt::format("{}/{}:{}", image.registry, program, image.tag)));
  container.Set("imagePullPolicy", Json::String(image.pull_policy));
}

void SetPullSecrets(Json& pod_spec, const std::vector<std::string>& names) {
  if (names.empty()) return;
  Json secrets = Json::MakeArray();
  for (const std::string& name : names) secrets.Append(NamedObject(name));
  pod_spec.Set("imagePullSecrets", std::move(secrets));
}

}  // namespace tessera::components
