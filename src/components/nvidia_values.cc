// SPDX-License-Identifier: Apache-2.0
#include "src/components/nvidia_values.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"
#include "src/components/deploy_text.h"
#include "src/components/schema.h"
#include "src/components/settings.h"

namespace tessera::components {
namespace {

struct Alias {
  std::vector<std::string_view> nvidia_path;
  std::string_view section;
  std::string_view key;
  Json::Kind kind;
};
const Alias kAliases[] = {
    {{"hostPaths", "driverInstallDir"}, "agent", "driverRoot", Json::Kind::kString},
    {{"toolkit", "enabled"}, "runtime", "enabled", Json::Kind::kBool},
    {{"operator", "runtimeClass"}, "runtime", "runtimeClass", Json::Kind::kString},
    {{"dcgmExporter", "enabled"}, "exporter", "enabled", Json::Kind::kBool},
    {{"dcgmExporter", "config", "name"}, "exporter", "configMap", Json::Kind::kString},
    {{"dcgmExporter", "serviceMonitor", "interval"},
     "serviceMonitor",
     "interval",
     Json::Kind::kString},
    {{"dcgmExporter", "serviceMonitor", "additionalLabels"},
     "serviceMonitor",
     "labels",
     Json::Kind::kObject},
};

const Json* ValueAt(const Json& spec, const std::vector<std::string_view>& path) {
  const Json* value = FindPath(spec, path);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool IsBool(const Json* value, bool wanted) {
  return value != nullptr && value->kind() == Json::Kind::kBool && value->bool_value() == wanted;
}

// A section of deploy/chart/files/nvidia-values.yaml.
const Json::Object& Table(std::string_view section) {
  static const Json tables = ParsedYaml("chart/files/nvidia-values.yaml");
  return tables.Find(section)->members();
}

const Json* ValueNamed(const Json& spec, std::string_view name) {
  const std::vector<std::string_view> path = Split(name, '.');
  return ValueAt(spec, path);
}

// A section with enabled: false counts as empty.
bool IsUnset(const Json* value) {
  return value == nullptr || IsEmpty(*value) || IsBool(value, false) ||
         (value->is_object() && IsBool(value->Find("enabled"), false));
}

Status CheckTables(const Json& spec) {
  std::vector<std::string> problems;
  for (const auto& [name, why] : Table("rejected")) {
    const Json* value = ValueNamed(spec, name);
    if (IsUnset(value)) continue;
    problems.push_back(fmt::format("{}={}: {}", name, value->Serialize(), why.string_value()));
  }
  for (const auto& [name, why] : Table("required")) {
    if (!IsBool(ValueNamed(spec, name), false)) continue;
    problems.push_back(fmt::format("{}=false: {}", name, why.string_value()));
  }
  if (problems.empty()) return Status::Ok();
  if (problems.size() == 1) return Status(Code::kInvalidArgument, problems.front());
  for (size_t i = 0; i < problems.size(); ++i) problems[i].insert(0, fmt::format("({}) ", i + 1));
  return Error(Code::kInvalidArgument, "{} values cannot be used: {}", problems.size(),
               fmt::join(problems, "; "));
}

Status Translate(const Alias& alias, Json* spec) {
  const Json* value = ValueAt(*spec, alias.nvidia_path);
  if (value == nullptr) return Status::Ok();
  if (value->kind() != alias.kind) {
    return Error(Code::kInvalidArgument, "{}: invalid value {}: want {}, as in {}.{}",
                 fmt::join(alias.nvidia_path, "."), value->Serialize(),
                 alias.kind == Json::Kind::kBool     ? "true or false"
                 : alias.kind == Json::Kind::kObject ? "an object"
                                                     : "a text",
                 alias.section, alias.key);
  }
  // An empty value means the default in NVIDIA's chart.
  if (IsEmpty(*value)) return Status::Ok();
  spec->Find(alias.section)->Set(alias.key, Json(*value));
  return Status::Ok();
}

// Checks the tolerations of the section `operator`, and removes its other values.
Status KeepOperatorTolerations(Json* spec) {
  const Json* value = ValueAt(*spec, {"operator", "tolerations"});
  const Json tolerations = value == nullptr ? Json::MakeArray() : *value;
  const Json& schema = *SpecSchema().Find("properties")->Find("daemonsets")->Find("properties");
  RETURN_IF_ERROR(
      CheckAgainstSchema(*schema.Find("tolerations"), tolerations, "operator.tolerations"));
  spec->Set("operator", Json::MakeObject({{"tolerations", tolerations}}));
  return Status::Ok();
}

}  // namespace

bool IsEmpty(const Json& value) {
  return value.is_null() || (value.is_string() && value.string_value().empty()) ||
         (value.is_array() && value.items().empty()) ||
         (value.is_object() && std::ranges::all_of(value.members(), [](const auto& member) {
            return IsEmpty(member.second);
          }));
}

std::string ReasonToIgnore(std::string_view name) {
  for (const auto& [section, key] :
       {std::pair("ignored", std::string(name)), std::pair("rejected", std::string(name)),
        std::pair("rejected", fmt::format("{}.enabled", name))}) {
    for (const auto& [known, why] : Table(section)) {
      if (known == key) return why.string_value();
    }
  }
  return "";
}

std::vector<std::string> IgnoredValues(const Json& spec) {
  std::vector<std::string> lines;
  for (const auto& [name, why] : Table("ignored")) {
    if (IsUnset(ValueNamed(spec, name))) continue;
    lines.push_back(fmt::format("{}: {}", name, why.string_value()));
  }
  for (const auto& [name, keys] : Table("partly")) {
    const Json* section = spec.Find(name);
    if (section == nullptr || !section->is_object()) continue;
    Json rest = *section;
    std::vector<std::string> followed;
    for (const Json& key : keys.items()) {
      followed.push_back(key.string_value());
      rest.Erase(key.string_value());
    }
    if (IsEmpty(rest)) continue;
    lines.push_back(fmt::format("{}: only {} {} an effect", name, fmt::join(followed, ", "),
                                followed.size() == 1 ? "has" : "have"));
  }
  return lines;
}

Status TranslateNvidiaValues(Json* spec) {
  RETURN_IF_ERROR(CheckTables(*spec));
  for (const Alias& alias : kAliases) RETURN_IF_ERROR(Translate(alias, spec));
  if (IsBool(ValueAt(*spec, {"dcgmExporter", "serviceMonitor", "enabled"}), true)) {
    spec->Find("serviceMonitor")->Set("enabled", Json::Bool(true));
  }
  if (const Json* secrets = spec->Find("imagePullSecrets")) {
    for (const Json& name : secrets->items()) {
      spec->Find("image")->Find("pullSecrets")->Append(name);
    }
  }
  for (const std::string_view section :
       {"hostPaths", "toolkit", "dcgmExporter", "imagePullSecrets"}) {
    spec->Erase(section);
  }
  return KeepOperatorTolerations(spec);
}

}  // namespace tessera::components
