// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "src/components/deploy_text.h"
#include "src/components/schema.h"

namespace tessera::components {
namespace {

// Sections of the settings that a pool may override.
constexpr std::array<std::string_view, 7> kPoolSections = {
    "daemonsets", "agent", "runtime", "sharing", "limits", "exporter", "driver"};

Json ParseJsonOrDie(std::string_view text) {
  Result<Json> json = ParseJson(text);
  TESSERA_CHECK(json.ok());
  return *std::move(json);
}

Json PoolSchema(const Json& properties) {
  Json pool = ParseJsonOrDie(R"({
    "type": "object", "additionalProperties": false, "required": ["name", "nodeSelector"],
    "properties": {
      "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
               "description": "at most 40 lower-case letters, digits and hyphens"},
      "mode": {"enum": ["whole", "shared"]}}})");
  Json& members = *pool.Find("properties");
  members.Set("nodeSelector",
              *properties.Find("daemonsets")->Find("properties")->Find("nodeSelector"));
  for (const std::string_view section : kPoolSections) {
    members.Set(section, *properties.Find(section));
  }
  // These settings apply to the whole cluster, or a pool's nodeSelector replaces them.
  members.Find("runtime")->Find("properties")->Erase("runtimeClass");
  members.Find("sharing")->Find("properties")->Erase("memoryUnit");
  members.Find("daemonsets")->Find("properties")->Erase("nodeSelector");
  return pool;
}

// `schema` with each {"$ref": "#/definitions/NAME"} replaced by this definition.
Json ResolveReferences(const Json& schema, const Json& definitions) {
  constexpr std::string_view kPrefix = "#/definitions/";
  if (schema.is_object() && schema.Find("$ref") != nullptr) {
    const std::string name = schema.StringAt("$ref").value().substr(kPrefix.size());
    return ResolveReferences(*definitions.Find(name), definitions);
  }
  Json out = schema;
  if (out.is_object()) {
    for (auto& [key, value] : out.members()) value = ResolveReferences(value, definitions);
  }
  return out;
}

// Removes `required`. The chart's schema requires all properties, because Helm checks values
// together with the defaults. A spec contains only values that differ from the defaults.
void MakeAllOptional(Json* schema) {
  schema->Erase("required");
  Json* properties = schema->Find("properties");
  if (properties == nullptr) return;
  for (auto& [name, property] : properties->members()) MakeAllOptional(&property);
}

Json MakeSpecSchema() {
  Json schema = ParseJsonOrDie(DeployText("chart/values.schema.json"));
  const Json definitions = *schema.Find("definitions");
  schema.Erase("definitions");
  schema = ResolveReferences(schema, definitions);
  MakeAllOptional(&schema);
  Json& properties = *schema.Find("properties");
  Json pools = Json::MakeObject();
  pools.Set("type", Json::String("array"));
  pools.Set("items", PoolSchema(properties));
  properties.Set("pools", std::move(pools));
  return schema;
}

}  // namespace

const Json& SpecSchema() {
  static const Json schema = MakeSpecSchema();
  return schema;
}

// A structural schema has one type for each value, or an x-kubernetes-* extension instead, and no
// additionalProperties beside properties.
Json StructuralSchema(const Json& schema) {
  Json out = Json::MakeObject();
  const Json* types = schema.Find("type");
  const bool has_type_list = types != nullptr && types->is_array();
  if (has_type_list) {
    // x-kubernetes-int-or-string does not allow fractions.
    const bool fractions = std::ranges::count(types->items(), Json::String("number")) > 0;
    out.Set(fractions ? "x-kubernetes-preserve-unknown-fields" : "x-kubernetes-int-or-string",
            Json::Bool(true));
  }
  for (const auto& [key, value] : schema.members()) {
    if (key == "properties") {
      Json properties = Json::MakeObject();
      for (const auto& [name, member] : value.members()) {
        properties.Set(name, StructuralSchema(member));
      }
      out.Set(key, std::move(properties));
    } else if (key == "items" || (key == "additionalProperties" && value.is_object())) {
      out.Set(key, StructuralSchema(value));
    } else if (key != "additionalProperties" && key != "$schema" && key != "title" &&
               !(has_type_list && key == "type")) {
      out.Set(key, value);
    }
  }
  if (has_type_list) return out;
  if (out.Find("type") == nullptr) out.Set("type", Json::String("string"));
  const bool allows_any =
      out.StringAt("type").value() == "object" && schema.Find("additionalProperties") == nullptr;
  // Without this extension the API server drops values that the schema does not name.
  if (allows_any) out.Set("x-kubernetes-preserve-unknown-fields", Json::Bool(true));
  return out;
}

}  // namespace tessera::components
