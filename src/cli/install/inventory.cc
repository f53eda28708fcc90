// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/inventory.h"

#include <algorithm>

#include "api/names.h"

namespace tessera::cli {
namespace {

constexpr const char* kName = "tessera-installation";

Json ObjectsOf(const std::vector<ObjectId>& ids) {
  Json objects = Json::MakeArray();
  for (const ObjectId& id : ids) {
    Json object = Json::MakeObject({{"apiVersion", Json::String(id.api_version)},
                                    {"kind", Json::String(id.kind)},
                                    {"name", Json::String(id.name)}});
    if (!id.ns.empty()) object.Set("namespace", Json::String(id.ns));
    objects.Append(std::move(object));
  }
  return objects;
}

Result<Json> ParsedAt(const Json& data, std::string_view key) {
  ASSIGN_OR_RETURN(const std::string text, data.StringAt(key));
  return ParseJson(text).Annotate(key);
}

Result<InstallationRecord> ParseInventory(const Json& config_map) {
  const Json* data = config_map.Find("data");
  if (data == nullptr) return Error(Code::kDataLoss, "data is missing");
  InstallationRecord out;
  ASSIGN_OR_RETURN(out.version, data->StringAt("version"));
  ASSIGN_OR_RETURN(const std::string owns, data->StringAt("ownsNamespace"));
  out.owns_namespace = owns == "true";
  ASSIGN_OR_RETURN(out.spec, ParsedAt(*data, "settings"));
  ASSIGN_OR_RETURN(const Json objects, ParsedAt(*data, "objects"));
  if (!objects.is_array()) return Error(Code::kDataLoss, "objects: want a list");
  for (const Json& object : objects.items()) {
    ObjectId id;
    ASSIGN_OR_RETURN(id.api_version, object.StringAt("apiVersion"));
    ASSIGN_OR_RETURN(id.kind, object.StringAt("kind"));
    ASSIGN_OR_RETURN(id.name, object.StringAt("name"));
    id.ns = object.StringAt("namespace").value_or("");
    out.objects.push_back(std::move(id));
  }
  return out;
}

}  // namespace

ObjectId InventoryId() { return {"v1", "ConfigMap", std::string(names::kSystemNamespace), kName}; }

Json InventoryObject(const InstallationRecord& installation) {
  const ObjectId id = InventoryId();
  Json labels = Json::MakeObject({{"app.kubernetes.io/part-of", Json::String("tessera")}});
  Json metadata = Json::MakeObject({{"name", Json::String(id.name)},
                                    {"namespace", Json::String(id.ns)},
                                    {"labels", std::move(labels)}});
  Json data = Json::MakeObject(
      {{"version", Json::String(installation.version)},
       {"ownsNamespace", Json::String(installation.owns_namespace ? "true" : "false")},
       {"settings", Json::String(installation.spec.Pretty())},
       {"objects", Json::String(ObjectsOf(installation.objects).Serialize())}});
  return Json::MakeObject({{"apiVersion", Json::String(id.api_version)},
                           {"kind", Json::String(id.kind)},
                           {"metadata", std::move(metadata)},
                           {"data", std::move(data)}});
}

Result<InstallationRecord> ReadInventory(const Json& config_map) {
  Result<InstallationRecord> read = ParseInventory(config_map);
  if (read.ok()) return read;
  return Error(Code::kDataLoss,
               "{} is damaged: {}: delete it, and run tessera install --force with all settings",
               InventoryId().Text(), read.status().message());
}

std::vector<ObjectId> UnionOf(std::vector<ObjectId> ids, const std::vector<ObjectId>& more) {
  for (const ObjectId& id : more) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

}  // namespace tessera::cli
