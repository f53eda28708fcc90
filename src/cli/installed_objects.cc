// SPDX-License-Identifier: Apache-2.0
#include "src/cli/installed_objects.h"

#include <algorithm>

#include "src/base/version.h"
#include "src/cli/install/inventory.h"
#include "src/cli/object_fields.h"
#include "src/components/objects.h"
#include "src/components/settings.h"

namespace tessera::cli {
namespace {

using components::Settings;

// Settings that add or remove objects. Helm has no pools of nodes, and installs no drivers.
constexpr void (*kSwitches[])(Settings& settings, bool on) = {
    [](Settings& settings, bool on) { settings.webhook = on; },
    [](Settings& settings, bool on) { settings.privileged_policy = on; },
    [](Settings& settings, bool on) { settings.network_policy = on; },
    [](Settings& settings, bool on) { settings.gpu_manager_metric = on; },
    [](Settings& settings, bool on) { settings.agent.runtime_enabled = on; },
    [](Settings& settings, bool on) { settings.scheduler.enabled = on; },
    [](Settings& settings, bool on) { settings.console.enabled = on; },
    [](Settings& settings, bool on) { settings.console.behind_https = on; },
    [](Settings& settings, bool on) { settings.monitoring.pod_monitor.enabled = on; },
    [](Settings& settings, bool on) { settings.monitoring.service_monitor.enabled = on; },
    [](Settings& settings, bool on) { settings.monitoring.prometheus_rule = on; },
    [](Settings& settings, bool on) { settings.monitoring.dashboards = on; },
};

bool Contains(const std::vector<ObjectId>& ids, const ObjectId& id) {
  return std::ranges::find(ids, id) != ids.end();
}

// The namespace is left out: without it, all objects in it are missing.
std::vector<ObjectId> IdsWithoutNamespace(const std::vector<Json>& objects) {
  std::vector<ObjectId> ids;
  for (const Json& object : objects) {
    ObjectId id = IdOf(object);
    if (id.kind != "Namespace") ids.push_back(std::move(id));
  }
  return ids;
}

std::vector<ObjectId> IdsFor(const Settings& settings) {
  return IdsWithoutNamespace(components::RenderObjects(settings));
}

std::vector<ObjectId> MissingOf(ClusterClient& api, const std::vector<ObjectId>& ids) {
  std::vector<ObjectId> missing;
  const std::vector<Result<Json>> found = api.Metadata(ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i].status().code() == Code::kNotFound) missing.push_back(ids[i]);
  }
  return missing;
}

bool IsSameRule(const Json& a, const Json& b) {
  constexpr std::string_view kFields[] = {"apiGroups", "resources", "resourceNames",
                                          "nonResourceURLs", "verbs"};
  return std::ranges::all_of(
      kFields, [&](std::string_view field) { return ItemsAt(a, {field}) == ItemsAt(b, {field}); });
}

// Those of the `wanted` objects that are roles, exist, and lack a rule.
std::vector<ObjectId> WeakRoles(ClusterClient& api, const std::vector<Json>& wanted) {
  std::vector<ObjectId> ids;
  std::vector<const Json::Array*> rules;
  for (const Json& object : wanted) {
    ObjectId id = IdOf(object);
    if (id.kind != "ClusterRole" && id.kind != "Role") continue;
    ids.push_back(std::move(id));
    rules.push_back(&ItemsAt(object, {"rules"}));
  }
  const std::vector<Result<Json>> roles = api.Objects(ids);
  std::vector<ObjectId> weak;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!roles[i].ok()) continue;
    const Json::Array& now = ItemsAt(*roles[i], {"rules"});
    const bool has_all = std::ranges::all_of(*rules[i], [&](const Json& rule) {
      return std::ranges::any_of(now, [&](const Json& one) { return IsSameRule(one, rule); });
    });
    if (!has_all) weak.push_back(ids[i]);
  }
  return weak;
}

InstalledObjects OfOperator(ClusterClient& api, const Json& resource) {
  InstalledObjects out{.tool = InstallTool::kOperator};
  const Json* spec = resource.Find("spec");
  const Result<Settings> settings =
      components::ParseSettings(spec == nullptr ? Json::MakeObject() : *spec);
  if (!settings.ok()) return out;  // the operator reports this in its resource
  const std::vector<Json> objects = components::RenderObjects(*settings);
  const std::vector<Json> own_objects = components::RenderOperator(*settings);
  out.missing = MissingOf(api, IdsWithoutNamespace(objects));
  out.weak_roles = WeakRoles(api, objects);
  out.weak_roles_of_operator = WeakRoles(api, own_objects);
  std::vector<ObjectId> own = IdsWithoutNamespace(own_objects);
  own.push_back(IdOf(components::TesseraDefinition()));
  out.missing_of_operator = MissingOf(api, own);
  return out;
}

Settings AllSwitchedOn() {
  Settings all = components::ParseSettings(Json::MakeObject()).value();
  for (const auto& turn : kSwitches) turn(all, true);
  return all;
}

// The settings, as far as the objects that exist show them.
Settings SettingsOf(const std::vector<ObjectId>& existing) {
  const Settings all = AllSwitchedOn();
  const std::vector<ObjectId> ids = IdsFor(all);
  Settings settings = all;
  for (const auto& turn : kSwitches) {
    Settings without = all;
    turn(without, false);
    const std::vector<ObjectId> left = IdsFor(without);
    const bool on = std::ranges::any_of(
        ids, [&](const ObjectId& id) { return !Contains(left, id) && Contains(existing, id); });
    turn(settings, on);
  }
  return settings;
}

InstalledObjects OfOtherTools(ClusterClient& api) {
  const std::vector<ObjectId> ids = IdsFor(AllSwitchedOn());
  const std::vector<Result<Json>> found = api.Metadata(ids);
  InstalledObjects out{.tool = InstallTool::kNone};
  std::vector<ObjectId> existing, unknown;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i].status().code() == Code::kNotFound) continue;
    (found[i].ok() ? existing : unknown).push_back(ids[i]);
    // NVIDIA's operator has a RuntimeClass of the same name.
    if (ids[i].kind == "RuntimeClass") continue;
    out.tool = InstallTool::kOther;
    if (found[i].ok() && out.release.name.empty()) out.release = HelmReleaseOf(*found[i]);
  }
  if (out.tool == InstallTool::kNone) return out;
  if (!out.release.name.empty()) out.tool = InstallTool::kHelm;
  const std::vector<Json> objects = components::RenderObjects(SettingsOf(existing));
  out.weak_roles = WeakRoles(api, objects);
  for (const ObjectId& id : IdsWithoutNamespace(objects)) {
    if (!Contains(existing, id) && !Contains(unknown, id)) out.missing.push_back(id);
  }
  return out;
}

}  // namespace

HelmRelease HelmReleaseOf(const Json& metadata) {
  return {TextAt(metadata, {"annotations", "meta.helm.sh/release-name"}),
          TextAt(metadata, {"annotations", "meta.helm.sh/release-namespace"})};
}

InstalledObjects ReadInstalledObjects(ClusterClient& api, const Result<Json>& resource) {
  if (resource.ok()) return OfOperator(api, *resource);
  const Result<Json> record = api.Get(InventoryId());
  const Result<Installation> inventory =
      record.ok() ? ReadInventory(*record) : Result<Installation>(record.status());
  if (!inventory.ok()) {
    InstalledObjects out = OfOtherTools(api);
    if (record.ok()) out.tool = InstallTool::kTessera;  // the inventory is damaged
    return out;
  }
  InstalledObjects out{.tool = InstallTool::kTessera};
  std::vector<ObjectId> ids = inventory->objects;
  std::erase_if(ids, [](const ObjectId& id) { return id.kind == "Namespace"; });
  out.missing = MissingOf(api, ids);
  // Roles of another version may differ.
  const Result<Settings> settings = components::ParseSettings(inventory->spec);
  if (inventory->version == kTesseraVersion && settings.ok()) {
    out.weak_roles = WeakRoles(api, components::RenderObjects(*settings));
  }
  return out;
}

}  // namespace tessera::cli
