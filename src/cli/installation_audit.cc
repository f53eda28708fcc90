// SPDX-License-Identifier: Apache-2.0
#include "src/cli/installation_audit.h"

#include <algorithm>

#include "src/base/version.h"
#include "src/cli/install/inventory.h"
#include "src/components/objects.h"
#include "src/components/settings.h"

namespace tessera::cli {
namespace {

using components::Settings;

// Settings that add or remove objects of an installation by Helm. The chart has neither pools of
// nodes nor drivers.
constexpr void (*kSettingSwitches[])(Settings& settings, bool on) = {
    [](Settings& settings, bool on) { settings.webhook_enabled = on; },
    [](Settings& settings, bool on) { settings.privileged_policy_enabled = on; },
    [](Settings& settings, bool on) { settings.network_policy_enabled = on; },
    [](Settings& settings, bool on) { settings.gpu_manager_metric_enabled = on; },
    [](Settings& settings, bool on) { settings.agent.runtime_enabled = on; },
    [](Settings& settings, bool on) { settings.scheduler.enabled = on; },
    [](Settings& settings, bool on) { settings.console.enabled = on; },
    [](Settings& settings, bool on) { settings.console.behind_https_proxy = on; },
    [](Settings& settings, bool on) { settings.monitoring.pod_monitor.enabled = on; },
    [](Settings& settings, bool on) { settings.monitoring.service_monitor.enabled = on; },
    [](Settings& settings, bool on) { settings.monitoring.prometheus_rule_enabled = on; },
    [](Settings& settings, bool on) { settings.monitoring.dashboards_enabled = on; },
};

bool Contains(const std::vector<ObjectId>& ids, const ObjectId& id) {
  return std::ranges::find(ids, id) != ids.end();
}

// Leaves out the namespace: if it is missing, all objects in it are reported as missing anyway.
std::vector<Json> WithoutNamespace(std::vector<Json> objects) {
  std::erase_if(objects, [](const Json& object) { return IdOf(object).kind == "Namespace"; });
  return objects;
}

std::vector<Json> ObjectsFor(const Settings& settings) {
  return WithoutNamespace(components::RenderObjects(settings));
}

// Adds the edits of the objects in `wanted` to `problems`; `found` is the metadata of `ids`.
void AddEdits(const std::vector<Json>& wanted, const std::vector<ObjectId>& ids,
              const std::vector<Result<Json>>& found, ObjectProblems* problems) {
  for (const Json& object : wanted) {
    const size_t i = std::ranges::find(ids, IdOf(object)) - ids.begin();
    if (i == ids.size() || !found[i].ok()) continue;
    std::vector<FieldEdit> edits = EditsOf(object, *found[i]);
    if (!edits.empty()) problems->edited.push_back({ids[i], std::move(edits)});
  }
}

ObjectProblems ProblemsOf(ClusterClient& api, const std::vector<ObjectId>& ids,
                          const std::vector<Json>& wanted) {
  ObjectProblems problems;
  const std::vector<Result<Json>> found = api.GetMetadata(ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i].status().code() == Code::kNotFound) problems.missing.push_back(ids[i]);
  }
  AddEdits(wanted, ids, found, &problems);
  return problems;
}

InstallationAudit AuditOperatorInstallation(ClusterClient& api, const Json& resource) {
  InstallationAudit audit{.tool = InstallTool::kOperator};
  const Json* spec = resource.Find("spec");
  const Result<Settings> settings =
      components::ParseSettings(spec == nullptr ? Json::MakeObject() : *spec);
  if (!settings.ok()) return audit;  // the operator reports this in its resource
  const std::vector<Json> objects = ObjectsFor(*settings);
  audit.problems = ProblemsOf(api, IdsOf(objects), objects);
  std::vector<Json> operator_objects = WithoutNamespace(components::RenderOperator(*settings));
  operator_objects.push_back(components::TesseraDefinition());
  audit.problems_of_operator = ProblemsOf(api, IdsOf(operator_objects), operator_objects);
  return audit;
}

Settings AllSwitchedOn() {
  Settings all = components::ParseSettings(Json::MakeObject()).value();
  for (const auto& turn : kSettingSwitches) turn(all, true);
  return all;
}

// The settings that the existing objects suggest.
Settings SettingsImpliedBy(const std::vector<ObjectId>& existing) {
  const Settings all = AllSwitchedOn();
  const std::vector<ObjectId> ids = IdsOf(ObjectsFor(all));
  Settings settings = all;
  for (const auto& turn : kSettingSwitches) {
    Settings switched_off = all;
    turn(switched_off, false);
    const std::vector<ObjectId> remaining = IdsOf(ObjectsFor(switched_off));
    const bool on = std::ranges::any_of(ids, [&](const ObjectId& id) {
      return !Contains(remaining, id) && Contains(existing, id);
    });
    turn(settings, on);
  }
  return settings;
}

InstallationAudit AuditByExistingObjects(ClusterClient& api) {
  const std::vector<ObjectId> ids = IdsOf(ObjectsFor(AllSwitchedOn()));
  const std::vector<Result<Json>> found = api.GetMetadata(ids);
  InstallationAudit audit{.tool = InstallTool::kNone};
  std::vector<ObjectId> existing, unknown;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i].status().code() == Code::kNotFound) continue;
    (found[i].ok() ? existing : unknown).push_back(ids[i]);
    // NVIDIA's operator has a RuntimeClass of the same name.
    if (ids[i].kind == "RuntimeClass") continue;
    audit.tool = InstallTool::kOther;
    if (found[i].ok() && audit.release.name.empty()) audit.release = HelmReleaseOf(*found[i]);
  }
  if (audit.tool == InstallTool::kNone) return audit;
  if (!audit.release.name.empty()) audit.tool = InstallTool::kHelm;
  const std::vector<Json> objects = ObjectsFor(SettingsImpliedBy(existing));
  for (const ObjectId& id : IdsOf(objects)) {
    if (!Contains(existing, id) && !Contains(unknown, id)) audit.problems.missing.push_back(id);
  }
  AddEdits(objects, ids, found, &audit.problems);
  for (EditedObject& object : audit.problems.edited) {
    std::erase_if(object.edits, [](const FieldEdit& edit) { return edit.manager.empty(); });
  }
  std::erase_if(audit.problems.edited,
                [](const EditedObject& object) { return object.edits.empty(); });
  return audit;
}

}  // namespace

HelmRelease HelmReleaseOf(const Json& metadata) {
  return {TextAt(metadata, {"annotations", "meta.helm.sh/release-name"}),
          TextAt(metadata, {"annotations", "meta.helm.sh/release-namespace"})};
}

InstallationAudit AuditInstallation(ClusterClient& api, const Result<Json>& resource) {
  if (resource.ok()) return AuditOperatorInstallation(api, *resource);
  const Result<Json> config_map = api.Get(InventoryId());
  const Result<InstallationRecord> inventory =
      config_map.ok() ? ReadInventory(*config_map)
                      : Result<InstallationRecord>(config_map.status());
  if (!inventory.ok()) {
    InstallationAudit audit = AuditByExistingObjects(api);
    if (config_map.ok()) audit.tool = InstallTool::kTessera;  // the inventory is damaged
    return audit;
  }
  InstallationAudit audit{.tool = InstallTool::kTessera};
  std::vector<ObjectId> ids = inventory->objects;
  std::erase_if(ids, [](const ObjectId& id) { return id.kind == "Namespace"; });
  // Another version of Tessera may have applied other fields, so edits are sought only if this
  // version installed Tessera.
  const Result<Settings> settings = components::ParseSettings(inventory->spec);
  const bool can_find_edits = inventory->version == kTesseraVersion && settings.ok();
  audit.problems =
      ProblemsOf(api, ids, can_find_edits ? ObjectsFor(*settings) : std::vector<Json>());
  return audit;
}

}  // namespace tessera::cli
