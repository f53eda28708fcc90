// SPDX-License-Identifier: Apache-2.0
#include "src/components/agent_written_fields.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "api/names.h"

namespace tessera::components {
namespace {

// "f:NAME" gives NAME; other keys ("." and "k:…") give "".
std::string NameOf(const std::string& key) { return key.starts_with("f:") ? key.substr(2) : ""; }

// "k:{"type":"GPUReady"}" gives GPUReady.
std::string ConditionOf(const std::string& key) {
  if (!key.starts_with("k:")) return "";
  const Result<Json> parsed = ParseJson(key.substr(2));
  return parsed.ok() ? parsed->StringAt("type").value_or("") : "";
}

template <typename ToName>
void AddNames(const Json::Object& fields, ToName to_name, std::set<std::string>* names) {
  for (const auto& [key, unused] : fields) {
    std::string name = to_name(key);
    if (!name.empty()) names->insert(std::move(name));
  }
}

struct FieldNames {
  std::set<std::string> labels, annotations, conditions, resources;
};

void AddFieldNames(const Json& entry, FieldNames* field_names) {
  const auto fields = [&](std::string_view part, std::string_view name) -> const Json::Object& {
    return MembersAt(entry, {"fieldsV1", part, name});
  };
  AddNames(fields("f:metadata", "f:labels"), NameOf, &field_names->labels);
  AddNames(fields("f:metadata", "f:annotations"), NameOf, &field_names->annotations);
  AddNames(fields("f:status", "f:conditions"), ConditionOf, &field_names->conditions);
  AddNames(fields("f:status", "f:capacity"), NameOf, &field_names->resources);
  AddNames(fields("f:status", "f:allocatable"), NameOf, &field_names->resources);
}

std::vector<std::string> Without(const std::set<std::string>& of_agents,
                                 const std::set<std::string>& of_others) {
  std::vector<std::string> names;
  std::ranges::set_difference(of_agents, of_others, std::back_inserter(names));
  return names;
}

void AddTesseraAnnotations(const Json& node, std::vector<std::string>* found) {
  for (const auto& [key, unused] : MembersAt(node, {"metadata", "annotations"})) {
    if (key.starts_with(names::kAnnotationPrefix) && std::ranges::count(*found, key) == 0) {
      found->push_back(key);
    }
  }
}

Json Nulls(const std::vector<std::string>& names) {
  Json object = Json::MakeObject();
  for (const std::string& name : names) object.Set(name, Json());
  return object;
}

}  // namespace

AgentWrittenFields AgentWrittenFieldsOf(const Json& node) {
  FieldNames of_agents, of_others;
  for (const Json& entry : ItemsAt(node, {"metadata", "managedFields"})) {
    AddFieldNames(entry, TextAt(entry, {"manager"}) == names::kAgent ? &of_agents : &of_others);
  }
  AgentWrittenFields fields{Without(of_agents.labels, of_others.labels),
                            Without(of_agents.annotations, of_others.annotations),
                            {of_agents.conditions.begin(), of_agents.conditions.end()},
                            {of_agents.resources.begin(), of_agents.resources.end()}};
  AddTesseraAnnotations(node, &fields.annotations);
  return fields;
}

std::optional<Json> NodeCleanupPatch(const AgentWrittenFields& fields) {
  if (fields.labels.empty() && fields.annotations.empty()) return std::nullopt;
  Json metadata = Json::MakeObject();
  if (!fields.labels.empty()) metadata.Set("labels", Nulls(fields.labels));
  if (!fields.annotations.empty()) metadata.Set("annotations", Nulls(fields.annotations));
  return Json::MakeObject({{"metadata", std::move(metadata)}});
}

std::optional<Json> NodeStatusCleanupPatch(const AgentWrittenFields& fields) {
  if (fields.conditions.empty() && fields.resources.empty()) return std::nullopt;
  Json status = Json::MakeObject();
  if (!fields.resources.empty()) {
    status.Set("capacity", Nulls(fields.resources));
    status.Set("allocatable", Nulls(fields.resources));
  }
  Json conditions = Json::MakeArray();
  for (const std::string& type : fields.conditions) {
    conditions.Append(
        Json::MakeObject({{"$patch", Json::String("delete")}, {"type", Json::String(type)}}));
  }
  if (!fields.conditions.empty()) status.Set("conditions", std::move(conditions));
  return Json::MakeObject({{"status", std::move(status)}});
}

}  // namespace tessera::components
