// SPDX-License-Identifier: Apache-2.0
#include "src/components/cluster_policy.h"

#include <string_view>
#include <utility>

#include "api/names.h"

namespace tessera::components {
namespace {

// The members on the way to the last key are created. REQUIRES: what exists there are objects.
Json* Descend(Json* object, const std::vector<std::string_view>& path) {
  for (const std::string_view key : path) {
    auto next = object->ObjectAt(key);
    if (!next.ok()) return nullptr;
    object = *next;
  }
  return object;
}

const Json* FindPath(const Json& object, const std::vector<std::string_view>& path) {
  const Json* at = &object;
  for (const std::string_view key : path) {
    at = at->is_object() ? at->Find(key) : nullptr;
    if (at == nullptr || at->is_null()) return nullptr;
  }
  return at;
}

Json NotOfNvidia() {
  // Pauses of a managed node, such as paused-for-driver-upgrade, are values of the label, too.
  return Json::MakeObject(
      {{"key", Json::String(names::kLabelDeployDevicePlugin)},
       {"operator", Json::String("NotIn")},
       {"values", Json::Strings({"true", "paused-for-driver-upgrade", "paused-for-mig-change"})}});
}

void KeepOff(Json* daemons) {
  Json* required = Descend(daemons, {"spec", "template", "spec", "affinity", "nodeAffinity",
                                     "requiredDuringSchedulingIgnoredDuringExecution"});
  if (required == nullptr) return;
  auto terms = required->ArrayAt("nodeSelectorTerms");
  if (!terms.ok()) return;
  // One of the terms must hold, so each gets the expression.
  if ((*terms)->items().empty()) (*terms)->Append(Json::MakeObject());
  for (Json& term : (*terms)->items()) {
    auto expressions = term.ArrayAt("matchExpressions");
    if (expressions.ok()) (*expressions)->Append(NotOfNvidia());
  }
}

// A field of a ClusterPolicy and the setting that means the same.
struct Mapping {
  std::vector<std::string_view> from;
  std::vector<std::string_view> to;
};

const std::vector<Mapping>& Mappings() {
  static const std::vector<Mapping> mappings = {
      {{"daemonsets", "labels"}, {"daemonsets", "labels"}},
      {{"daemonsets", "annotations"}, {"daemonsets", "annotations"}},
      {{"daemonsets", "tolerations"}, {"daemonsets", "tolerations"}},
      {{"daemonsets", "priorityClassName"}, {"daemonsets", "priorityClassName"}},
      {{"daemonsets", "updateStrategy"}, {"daemonsets", "updateStrategy"}},
      {{"daemonsets", "rollingUpdate", "maxUnavailable"},
       {"daemonsets", "rollingUpdate", "maxUnavailable"}},
      {{"toolkit", "enabled"}, {"runtime", "enabled"}},
      {{"dcgmExporter", "enabled"}, {"exporter", "enabled"}},
      {{"dcgmExporter", "config", "name"}, {"exporter", "configMap"}},
      {{"dcgmExporter", "serviceMonitor", "enabled"}, {"podMonitor", "enabled"}},
      {{"dcgmExporter", "serviceMonitor", "interval"}, {"podMonitor", "interval"}},
      {{"dcgmExporter", "serviceMonitor", "additionalLabels"}, {"podMonitor", "labels"}},
      {{"hostPaths", "driverInstallDir"}, {"agent", "driverRoot"}},
  };
  return mappings;
}

// Sections without a meaning, and why.
constexpr std::pair<std::string_view, std::string_view> kDropped[] = {
    {"operator", "Tessera's operator has its own Deployment and RuntimeClass"},
    {"devicePlugin",
     "the agent is the device plugin; there is no time-slicing configuration, use "
     "the requests of shares"},
    {"dcgm", "the exporter reads NVML and needs no DCGM"},
    {"gfd", "the agent writes the labels"},
    {"nodeStatusExporter", "the agent's metrics and condition GPUReady say the same"},
    {"validator", "the agent checks the driver itself"},
    {"mig", "MIG devices are offered as they are on the node, as with strategy mixed"},
    {"migManager", "MIG is configured on the node"},
    {"gds", "not managed"},
    {"gdrcopy", "not managed"},
    {"cdi", "tessera-runtime injects devices itself"},
    {"psa", "the namespace has its label"},
    {"psp", "PodSecurityPolicies do not exist any more"},
    {"hostPaths", "only driverInstallDir has a meaning"},
    {"sandboxWorkloads", "virtual machines are not supported"},
    {"vfioManager", "virtual machines are not supported"},
    {"sandboxDevicePlugin", "virtual machines are not supported"},
    {"kataSandboxDevicePlugin", "virtual machines are not supported"},
    {"vgpuManager", "virtual machines are not supported"},
    {"vgpuDeviceManager", "virtual machines are not supported"},
    {"ccManager", "virtual machines are not supported"},
    {"kataManager", "virtual machines are not supported"},
};

// Fields of a section that is mapped in part: images and resources of other programs.
void NoteUnmapped(const std::string& section, const Json& value, MigrationPlan* plan) {
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.members()) {
    bool mapped = false;
    for (const Mapping& one : Mappings()) {
      mapped = mapped || (one.from[0] == section && one.from[1] == key);
    }
    if (!mapped && !member.is_null()) {
      plan->dropped.push_back(
          fmt::format("spec.{}.{}: it is of a program that Tessera does not run", section, key));
    }
  }
}

void NoteDropped(const Json& spec, MigrationPlan* plan) {
  for (const auto& [section, value] : spec.members()) {
    if (value.is_null() || section == "driver") continue;
    std::string_view why = "unknown here";
    bool mapped = false;
    for (const Mapping& one : Mappings()) mapped = mapped || one.from[0] == section;
    for (const auto& [known, reason] : kDropped) {
      if (known == section) why = reason;
    }
    if (mapped && section != "hostPaths") {
      NoteUnmapped(section, value, plan);
    } else if (!mapped || value.is_object()) {
      const bool only_mapped = section == "hostPaths" && value.members().size() == 1 &&
                               value.Find("driverInstallDir") != nullptr;
      if (!only_mapped) plan->dropped.push_back(fmt::format("spec.{}: {}", section, why));
    }
  }
}

// Without the toolkit, the host's engine has NVIDIA's runtime.
void PlanRuntime(MigrationPlan* plan) {
  Json* spec = plan->resource.Find("spec");
  const Json* enabled = FindPath(*spec, {"runtime", "enabled"});
  if (enabled == nullptr || enabled->kind() != Json::Kind::kBool || enabled->bool_value()) return;
  Descend(spec, {"agent"})->Set("extraArgs", Json::Strings({"--binding=allocate"}));
}

// A driver that NVIDIA's operator installs stays, as a driver of the host.
void PlanDriver(const Json& spec, MigrationPlan* plan) {
  const Json* enabled = FindPath(spec, {"driver", "enabled"});
  const bool installs =
      spec.Find("driver") != nullptr &&
      (enabled == nullptr || enabled->kind() != Json::Kind::kBool || enabled->bool_value());
  if (!installs) return;
  Json* agent = Descend(plan->resource.Find("spec"), {"agent"});
  if (agent->Find("driverRoot") == nullptr) {
    agent->Set("driverRoot", Json::String("/run/nvidia/driver"));
  }
  plan->dropped.emplace_back(
      "spec.driver: the driver stays where NVIDIA's operator has installed it; leave its driver "
      "DaemonSet running, or install the driver on the host");
}

}  // namespace

void KeepOffNvidiaNodes(std::vector<Component>* components) {
  const auto is_nvidias = [](const Json& object) {
    const Json* metadata = object.Find("metadata");
    return object.StringAt("kind").value_or("") == "RuntimeClass" && metadata != nullptr &&
           metadata->StringAt("name").value_or("") == "nvidia";
  };
  for (Component& component : *components) {
    std::erase_if(component.objects, is_nvidias);
    for (Json& object : component.objects) {
      if (object.StringAt("kind").value_or("") == "DaemonSet") KeepOff(&object);
    }
  }
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
  plan.resource = Json::MakeObject(
      {{"apiVersion", Json::String(fmt::format("{}/{}", names::kGroup, names::kResourceVersion))},
       {"kind", Json::String(names::kResourceKind)},
       {"metadata", Json::MakeObject({{"name", Json::String(names::kResourceName)}})},
       {"spec", Json::MakeObject()}});
  for (const Mapping& one : Mappings()) {
    const Json* value = FindPath(*spec, one.from);
    if (value == nullptr) continue;
    const std::vector<std::string_view> parents(one.to.begin(), one.to.end() - 1);
    Descend(plan.resource.Find("spec"), parents)->Set(one.to.back(), *value);
  }
  PlanRuntime(&plan);
  PlanDriver(*spec, &plan);
  NoteDropped(*spec, &plan);
  plan.steps = {
      "apply this resource: agents start only on nodes that NVIDIA's operator does not manage",
      fmt::format("move node by node: kubectl label node NODE {}=false --overwrite, wait until the "
                  "agent is ready there",
                  names::kLabelDeployDevicePlugin),
      "when no node is left, delete the ClusterPolicy and uninstall NVIDIA's operator"};
  return plan;
}

}  // namespace tessera::components
