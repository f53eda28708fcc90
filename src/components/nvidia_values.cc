// SPDX-License-Identifier: Apache-2.0
#include "src/components/nvidia_values.h"

#include <array>
#include <vector>

namespace tessera::components {
namespace {

constexpr std::array<std::string_view, 10> kAbsent = {
    "migManager",       "vgpuManager",         "vgpuDeviceManager", "vfioManager", "kataManager",
    "sandboxWorkloads", "sandboxDevicePlugin", "ccManager",         "gdrcopy",     "gds"};
constexpr std::array<std::string_view, 2> kPartsOfTheAgent = {"devicePlugin", "gfd"};

struct Alias {
  std::vector<std::string_view> theirs;
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
};

const Json* ValueAt(const Json& spec, const std::vector<std::string_view>& path) {
  const Json* value = &spec;
  for (const std::string_view key : path) value = value ? value->Find(key) : nullptr;
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool IsBool(const Json* value, bool wanted) {
  return value != nullptr && value->kind() == Json::Kind::kBool && value->bool_value() == wanted;
}

Status CheckEnabled(const Json& spec) {
  for (const std::string_view name : kAbsent) {
    if (!IsBool(ValueAt(spec, {name, "enabled"}), true)) continue;
    return Error(Code::kInvalidArgument,
                 "{}.enabled=true: Tessera has no such component: leave the value out", name);
  }
  for (const std::string_view name : kPartsOfTheAgent) {
    if (!IsBool(ValueAt(spec, {name, "enabled"}), false)) continue;
    return Error(Code::kInvalidArgument,
                 "{}.enabled=false: it is a part of tessera-agent and cannot be left out: leave "
                 "the value out",
                 name);
  }
  return Status::Ok();
}

Status Translate(const Alias& alias, Json* spec) {
  const Json* value = ValueAt(*spec, alias.theirs);
  if (value == nullptr) return Status::Ok();
  if (value->kind() != alias.kind) {
    return Error(Code::kInvalidArgument, "{}: invalid value {}: want {}, as in {}.{}",
                 fmt::join(alias.theirs, "."), value->Serialize(),
                 alias.kind == Json::Kind::kBool ? "true or false" : "a text", alias.section,
                 alias.key);
  }
  // An empty text means the default in NVIDIA's chart.
  if (value->is_string() && value->string_value().empty()) return Status::Ok();
  spec->Find(alias.section)->Set(alias.key, Json(*value));
  return Status::Ok();
}

}  // namespace

Status TranslateNvidiaValues(Json* spec) {
  RETURN_IF_ERROR(CheckEnabled(*spec));
  for (const Alias& alias : kAliases) RETURN_IF_ERROR(Translate(alias, spec));
  if (IsBool(ValueAt(*spec, {"dcgmExporter", "serviceMonitor", "enabled"}), true)) {
    spec->Find("podMonitor")->Set("enabled", Json::Bool(true));
  }
  if (const Json* secrets = spec->Find("imagePullSecrets")) {
    for (const Json& name : secrets->items()) {
      spec->Find("image")->Find("pullSecrets")->Append(name);
    }
  }
  for (const std::string_view section :
       {"hostPaths", "toolkit", "operator", "dcgmExporter", "imagePullSecrets"}) {
    spec->Erase(section);
  }
  return Status::Ok();
}

}  // namespace tessera::components
