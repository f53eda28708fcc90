// SPDX-License-Identifier: Apache-2.0
#include "src/components/cluster_policy.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "api/names.h"
#include "src/components/nvidia_values.h"
#include "src/components/schema.h"
#include "src/formats/text_edit.h"

namespace tessera::components {
namespace {

// The object at `path`; creates missing objects on the way. Null if a value at the path or on the
// way is not an object.
Json* FindOrAddObject(Json* object, const KeyPath& path) {
  for (const std::string& key : path) {
    auto next = object->EnsureObject(key);
    if (!next.ok()) return nullptr;
    object = *next;
  }
  return object;
}

// Values of kLabelDeployDevicePlugin on nodes that NVIDIA's operator manages. With the last two
// values NVIDIA's components are paused.
constexpr std::array<std::string_view, 3> kManagedValues = {"true", "paused-for-driver-upgrade",
                                                            "paused-for-mig-change"};

Json NotManagedByNvidia() {
  return Json::MakeObject(
      {{"key", Json::String(names::kLabelDeployDevicePlugin)},
       {"operator", Json::String("NotIn")},
       {"values", Json::Strings({kManagedValues.begin(), kManagedValues.end()})}});
}

void ExcludeNvidiaNodes(Json* daemonset) {
  Json* required =
      FindOrAddObject(daemonset, {"spec", "template", "spec", "affinity", "nodeAffinity",
                                  "requiredDuringSchedulingIgnoredDuringExecution"});
  if (required == nullptr) return;
  auto terms = required->EnsureArray("nodeSelectorTerms");
  if (!terms.ok()) return;
  // A node must match one of the terms, so each term gets the expression.
  if ((*terms)->items().empty()) (*terms)->Append(Json::MakeObject());
  for (Json& term : (*terms)->items()) {
    auto expressions = term.EnsureArray("matchExpressions");
    if (expressions.ok()) (*expressions)->Append(NotManagedByNvidia());
  }
}

// A field of a ClusterPolicy and the setting with the same meaning.
struct FieldMapping {
  KeyPath from;
  KeyPath to;
};

const std::vector<FieldMapping>& Mappings() {
  static const std::vector<FieldMapping> mappings = {
      {{"daemonsets", "labels"}, {"daemonsets", "labels"}},
      {{"daemonsets", "annotations"}, {"daemonsets", "annotations"}},
      {{"daemonsets", "tolerations"}, {"daemonsets", "tolerations"}},
      {{"daemonsets", "priorityClassName"}, {"daemonsets", "priorityClassName"}},
      {{"daemonsets", "updateStrategy"}, {"daemonsets", "updateStrategy"}},
      {{"daemonsets", "rollingUpdate", "maxUnavailable"},
       {"daemonsets", "rollingUpdate", "maxUnavailable"}},
      {{"operator", "runtimeClass"}, {"runtime", "runtimeClass"}},
      {{"toolkit", "enabled"}, {"runtime", "enabled"}},
      {{"dcgmExporter", "enabled"}, {"exporter", "enabled"}},
      {{"dcgmExporter", "config", "name"}, {"exporter", "configMap"}},
      {{"dcgmExporter", "serviceMonitor", "enabled"}, {"serviceMonitor", "enabled"}},
      {{"dcgmExporter", "serviceMonitor", "interval"}, {"serviceMonitor", "interval"}},
      {{"dcgmExporter", "serviceMonitor", "additionalLabels"}, {"serviceMonitor", "labels"}},
      {{"hostPaths", "driverInstallDir"}, {"agent", "driverRoot"}},
  };
  return mappings;
}

bool IsMapped(std::string_view section, std::string_view field) {
  return std::ranges::any_of(Mappings(), [&](const FieldMapping& mapping) {
    return mapping.from[0] == section && (field.empty() || mapping.from[1] == field);
  });
}

bool IsDisabled(const Json& section) {
  const Json* enabled = section.Find("enabled");
  return enabled != nullptr && *enabled == Json::Bool(false);
}

// Adds the ignored fields of a mapped section, such as images of NVIDIA's programs, to
// plan->unmapped_settings.
void AddUnmappedFields(const std::string& section, const Json& value, MigrationPlan* plan) {
  if (!value.is_object()) return;
  std::string fields;
  for (const auto& [key, member] : value.members()) {
    if (IsMapped(section, key) || key == "enabled" || IsEmpty(member)) continue;
    fields += (fields.empty() ? "" : ", ") + key;
  }
  if (fields.empty()) return;
  plan->unmapped_settings.push_back(
      fmt::format("spec.{}: {}: of a program that Tessera does not run", section, fields));
}

void AddUnmappedSettings(const Json& spec, MigrationPlan* plan) {
  const Json* driver = spec.Find("driver");
  const bool installs_driver = driver != nullptr && !IsDisabled(*driver);
  for (const auto& [section, value] : spec.members()) {
    if (IsEmpty(value) || section == "driver") continue;
    if (installs_driver && (section == "gds" || section == "gdrcopy")) continue;
    if (IsMapped(section, "")) {
      AddUnmappedFields(section, value, plan);
      continue;
    }
    if (IsDisabled(value)) continue;
    const std::string why = ReasonToIgnore(section);
    plan->unmapped_settings.push_back(
        fmt::format("spec.{}: {}", section, why.empty() ? "unknown here" : why));
  }
}

void SetSetting(const KeyPath& setting, std::string field, const Json& value, MigrationPlan* plan) {
  const KeyPath parents(setting.begin(), setting.end() - 1);
  FindOrAddObject(plan->resource.Find("spec"), parents)->Set(setting.back(), value);
  plan->mapped_settings.push_back(
      {std::move(field), fmt::format("{}", fmt::join(setting, ".")), value});
}

void MapSettings(const Json& spec, MigrationPlan* plan) {
  for (const FieldMapping& mapping : Mappings()) {
    const Json* value = FindPath(spec, mapping.from);
    if (value == nullptr || IsEmpty(*value)) continue;
    // NVIDIA's chart always sets this value. It needs no setting: after the host, the agent looks
    // for a driver in this directory.
    if (mapping.from.back() == "driverInstallDir" &&
        *value == Json::String(names::kDriverContainerRoot)) {
      continue;
    }
    SetSetting(mapping.to, fmt::format("spec.{}", fmt::join(mapping.from, ".")), *value, plan);
  }
}

// If the toolkit is disabled, the administrator has configured NVIDIA's runtime in the host's
// engine.
void PlanRuntime(const Json& spec, MigrationPlan* plan) {
  const Json* toolkit = spec.Find("toolkit");
  if (toolkit == nullptr || !IsDisabled(*toolkit)) return;
  SetSetting({"agent", "extraArgs"}, "spec.toolkit.enabled", Json::Strings({"--binding=allocate"}),
             plan);
}

const Json& SchemaOf(const Json& schema, std::string_view key) {
  return *schema.Find("properties")->Find(key);
}

// Returns the valid members of the section, and adds the others to plan->unmapped_settings.
Json ValidMembersOf(const Json& schema, const Json& section, const std::string& path,
                    MigrationPlan* plan) {
  Json out = Json::MakeObject();
  for (const auto& [key, value] : section.members()) {
    if (IsEmpty(value)) continue;
    const std::string place = fmt::format("{}.{}", path, key);
    const Json* known = schema.Find("properties")->Find(key);
    // Only fields of spec.driver may be ignored. The sections gds and gdrcopy become sections of
    // `driver`.
    const std::string why =
        place.starts_with("spec.driver.") ? ReasonToIgnore(place.substr(5)) : "";
    if (known == nullptr || !why.empty()) {
      plan->unmapped_settings.push_back(
          fmt::format("{}: {}", place, why.empty() ? "Tessera's driver has no such setting" : why));
    } else if (known->Find("properties") != nullptr && value.is_object()) {
      Json kept = ValidMembersOf(*known, value, place, plan);
      if (!IsEmpty(kept)) out.Set(key, std::move(kept));
    } else if (Status valid = CheckAgainstSchema(*known, value, place); valid.ok()) {
      out.Set(key, value);
    } else {
      plan->unmapped_settings.emplace_back(valid.message());
    }
  }
  return out;
}

// The section with the names of NVIDIA's chart, which Tessera's settings use, too.
Json RenameDriverFields(Json driver) {
  const auto open_modules = driver.BoolAt("useOpenKernelModules");
  // The newer name takes precedence.
  if (driver.StringAt("kernelModuleType").value_or("").empty() && open_modules.ok()) {
    driver.Set("kernelModuleType", Json::String(*open_modules ? "open" : "proprietary"));
  }
  Json* policy = driver.Find("upgradePolicy");
  if (policy != nullptr && policy->Find("podDeletion") != nullptr) {
    policy->Set("gpuPodDeletion", *policy->Find("podDeletion"));
    policy->Erase("podDeletion");
  }
  for (const auto* key : {"enabled", "useNvidiaDriverCRD", "useOpenKernelModules"}) {
    driver.Erase(key);
  }
  return driver;
}

void MapDriver(const Json& spec, const Json& driver, MigrationPlan* plan) {
  const Json& schema = SchemaOf(SpecSchema(), "driver");
  const Json kept = ValidMembersOf(schema, RenameDriverFields(driver), "spec.driver", plan);
  for (const auto& [key, value] : kept.members()) {
    SetSetting({"driver", key}, "spec.driver." + key, value, plan);
  }
  for (const auto* part : {"gds", "gdrcopy"}) {
    const Json* section = spec.Find(part);
    if (section == nullptr || section->Find("enabled") == nullptr || IsDisabled(*section)) continue;
    const std::string field = fmt::format("spec.{}", part);
    SetSetting({"driver", part}, field,
               ValidMembersOf(SchemaOf(schema, part), *section, field, plan), plan);
  }
}

// A driver that NVIDIA's operator has installed stays, as a driver of the host. Its settings are
// copied except driver.enabled, so that an administrator can later let Tessera's operator install
// the driver.
void PlanDriver(const Json& spec, MigrationPlan* plan) {
  const Json* driver = spec.Find("driver");
  if (driver == nullptr || IsDisabled(*driver)) return;
  if (FindPath(*plan->resource.Find("spec"), {"agent", "driverRoot"}) == nullptr) {
    SetSetting({"agent", "driverRoot"}, "spec.driver", Json::String(names::kDriverContainerRoot),
               plan);
  }
  if (driver->BoolAt("useNvidiaDriverCRD").value_or(false)) {
    plan->unmapped_settings.emplace_back(
        "spec.driver.useNvidiaDriverCRD: NVIDIADriver resources are not read: give their settings "
        "as driver and pools with --set or -f");
    return;
  }
  MapDriver(spec, *driver, plan);
}

void PlanSteps(const Json& spec, MigrationPlan* plan) {
  if (const std::string name = TextAt(spec, {"dcgmExporter", "config", "name"}); !name.empty()) {
    plan->steps.push_back(fmt::format("copy ConfigMap {} of NVIDIA's operator to namespace {}",
                                      name, names::kSystemNamespace));
  }
  plan->steps.emplace_back(
      "apply this resource: agents start only on nodes that NVIDIA's operator does not manage");
  plan->steps.push_back(fmt::format(
      "move node by node: kubectl label node NODE {}=false --overwrite, wait until the agent is "
      "ready there",
      names::kLabelDeployDevicePlugin));
  plan->steps.emplace_back(
      "when no node is left, delete the ClusterPolicy and uninstall NVIDIA's operator");
  const Json* driver = spec.Find("driver");
  if (driver == nullptr || IsDisabled(*driver)) return;
  plan->steps.back() =
      "when no node is left, keep NVIDIA's operator for its driver; or let tessera-operator "
      "install the driver: drain the nodes, delete the ClusterPolicy, and set driver.enabled=true "
      "in the resource";
}

}  // namespace

void KeepOffNvidiaNodes(std::vector<Json>* objects) {
  for (Json& object : *objects) {
    if (object.StringAt("kind").value_or("") == "DaemonSet") ExcludeNvidiaNodes(&object);
  }
}

void KeepOffNvidiaNodes(std::vector<Component>* components) {
  const auto is_nvidias = [](const Json& object) {
    return TextAt(object, {"kind"}) == "RuntimeClass" &&
           TextAt(object, {"metadata", "name"}) == names::kRuntimeHandler;
  };
  for (Component& component : *components) {
    std::erase_if(component.objects, is_nvidias);
    KeepOffNvidiaNodes(&component.objects);
  }
}

bool IsManagedByNvidia(const Json& node) {
  return IsManagedByNvidia(
      std::string_view(TextAt(node, {"metadata", "labels", names::kLabelDeployDevicePlugin})));
}

bool IsManagedByNvidia(std::string_view deploy_device_plugin) {
  return std::ranges::find(kManagedValues, deploy_device_plugin) != kManagedValues.end();
}

Json TesseraResource(Json spec) {
  return Json::MakeObject(
      {{"apiVersion", Json::String(names::kCustomResourceApiVersion)},
       {"kind", Json::String(names::kCustomResourceKind)},
       {"metadata", Json::MakeObject({{"name", Json::String(names::kCustomResourceName)}})},
       {"spec", std::move(spec)}});
}

Result<MigrationPlan> PlanMigration(const Json& policy) {
  const std::string kind = policy.is_object() ? policy.StringAt("kind").value_or("") : "";
  if (kind != "ClusterPolicy") {
    return Error(Code::kInvalidArgument,
                 "cannot migrate an object of kind \"{}\": want a ClusterPolicy of nvidia.com/v1",
                 kind);
  }
  const Json none = Json::MakeObject();
  const Json* spec = policy.Find("spec");
  if (spec == nullptr || !spec->is_object()) spec = &none;
  MigrationPlan plan;
  plan.resource = TesseraResource(Json::MakeObject());
  MapSettings(*spec, &plan);
  PlanRuntime(*spec, &plan);
  PlanDriver(*spec, &plan);
  AddUnmappedSettings(*spec, &plan);
  PlanSteps(*spec, &plan);
  return plan;
}

}  // namespace tessera::components
