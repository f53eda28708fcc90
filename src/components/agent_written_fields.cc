// SPDX-License-Identifier: Apache-2.0
#include "src/components/agent_written_fields.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "api/names.h"

namespace tessera::components {
namespace {

// Fields of one entry of managedFields at a path such as {"f:metadata", "f:labels"}; null if none.
const Json* FieldsAt(const Json& entry, std::initializer_list<std::string_view> path) {
  const Json* fields = entry.Find("fieldsV1");
  for (const std::string_view part : path) {
    fields = fields != nullptr && fields->is_object() ? fields->Find(part) : nullptr;
  }
  return fields;
}

// "f:NAME" gives NAME; other keys ("." and "k:…") give "".
std::string NameOf(const std::string& key) { return key.starts_with("f:") ? key.substr(2) : ""; }

// "k:{"type":"GPUReady"}" gives GPUReady.
std::string ConditionOf(const std::string& key) {
  if (!key.starts_with("k:")) return "";
  const Result<Json> parsed = ParseJson(key.substr(2));
  return parsed.ok() ? parsed->StringAt("type").value_or("") : "";
}

template <typename ToName>
void AddNames(const Json* fields, ToName to_name, std::set<std::string>* names) {
  if (fields == nullptr || !fields->is_object()) return;
  for (const auto& [key, unused] : fields->members()) {
    std::string name = to_name(key);
    if (!name.empty()) names->insert(std::move(name));
  }
}

struct FieldNames {
  std::set<std::string> labels, annotations, conditions, resources;
};

void AddFieldNames(const Json& entry, FieldNames* field_names) {
  AddNames(FieldsAt(entry, {"f:metadata", "f:labels"}), NameOf, &field_names->labels);
  AddNames(FieldsAt(entry, {"f:metadata", "f:annotations"}), NameOf, &field_names->annotations);
  AddNames(FieldsAt(entry, {"f:status", "f:conditions"}), ConditionOf, &field_names->conditions);
  AddNames(FieldsAt(entry, {"f:status", "f:capacity"}), NameOf, &field_names->resources);
  AddNames(FieldsAt(entry, {"f:status", "f:allocatable"}), NameOf, &field_names->resources);
}

std::vector<std::string> Without(const std::set<std::string>& of_agents,
                                 const std::set<std::string>& of_others) {
  std::vector<std::string> names;
  std::ranges::set_difference(of_agents, of_others, std::back_inserter(names));
  return names;
}

void AddTesseraAnnotations(const Json* annotations, std::vector<std::string>* found) {
  if (annotations == nullptr || !annotations->is_object()) return;
  for (const auto& [key, unused] : annotations->members()) {
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
  const Json* metadata = node.Find("metadata");
  const Json* managed = metadata ? metadata->Find("managedFields") : nullptr;
  const Json none = Json::MakeArray();
  if (managed == nullptr || !managed->is_array()) managed = &none;
  for (const Json& entry : managed->items()) {
    AddFieldNames(
        entry, entry.StringAt("manager").value_or("") == names::kAgent ? &of_agents : &of_others);
  }
  AgentWrittenFields fields{Without(of_agents.labels, of_others.labels),
                            Without(of_agents.annotations, of_others.annotations),
                            {of_agents.conditions.begin(), of_agents.conditions.end()},
                            {of_agents.resources.begin(), of_agents.resources.end()}};
  AddTesseraAnnotations(metadata ? metadata->Find("annotations") : nullptr, &fields.annotations);
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
