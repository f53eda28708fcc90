// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/webhook_config.h"

#include "src/formats/base64.h"

namespace tessera::certificates {
namespace {

Json Op(const char* op, std::string path, Json value) {
  return Json::MakeObject(
      {{"op", Json::String(op)}, {"path", Json::String(path)}, {"value", std::move(value)}});
}

}  // namespace

std::optional<Json> BundlePatch(const Json& configuration, const std::string& bundle) {
  const Json* webhooks = configuration.Find("webhooks");
  if (webhooks == nullptr || !webhooks->is_array()) return std::nullopt;
  const std::string wanted = Base64Encode(bundle);
  Json::Array patch;
  for (size_t i = 0; i < webhooks->items().size(); ++i) {
    const Json& webhook = webhooks->items()[i];
    const Json* name = webhook.Find("name");
    const Json* client = webhook.Find("clientConfig");
    if (name == nullptr || client == nullptr || !client->is_object()) continue;
    if (client->StringAt("caBundle").value_or("") == wanted) continue;
    const std::string path = fmt::format("/webhooks/{}", i);
    patch.push_back(Op("test", path + "/name", *name));
    // "add" also replaces an existing value.
    patch.push_back(Op("add", path + "/clientConfig/caBundle", Json::String(wanted)));
  }
  if (patch.empty()) return std::nullopt;
  return Json::MakeArray(std::move(patch));
}

}  // namespace tessera::certificates
