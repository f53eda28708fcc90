// SPDX-License-Identifier: Apache-2.0
#include "src/kube/testing/samples.h"

#include "src/kube/testing/wire_writer.h"
#include "src/kube/times.h"

namespace tessera::kube::testing {
namespace {

constexpr const char* kPhases[] = {"Unknown", "Pending", "Running", "Succeeded", "Failed"};

bool Chance(Random& random, int percent) {
  return random.Below(100) < static_cast<uint64_t>(percent);
}

StringMap SampleMap(Random& random, std::string_view prefix, uint64_t max_entries) {
  StringMap map;
  for (uint64_t i = random.Below(max_entries + 1); i > 0; --i) {
    map[fmt::format("{}{}", prefix, random.Below(20))] =
        Chance(random, 10) ? "" : fmt::format("v\"{}\n\xc3\xa9", random.Below(1000));
  }
  return map;
}

StringMap SampleQuantities(Random& random) {
  StringMap map{{"cpu", fmt::format("{}m", random.Below(8000))},
                {"memory", fmt::format("{}Mi", random.Below(100000))}};
  if (Chance(random, 60)) map["nvidia.com/gpu"] = fmt::format("{}", random.Below(9));
  if (Chance(random, 30)) map["tencent.com/vcuda-core"] = fmt::format("{}", random.Below(100));
  return map;
}

WallTime SampleTime(Random& random, Duration unit) {
  const auto units = std::chrono::seconds(100'000'000) / unit;
  return WallTime(std::chrono::seconds(1'700'000'000)) +
         unit * static_cast<int64_t>(random.Below(static_cast<uint64_t>(units)));
}

ObjectMeta SampleMeta(Random& random, std::string_view kind, int number, bool namespaced) {
  return {.name = fmt::format("{}-{}", kind, number),
          .ns = namespaced ? fmt::format("team-{}", number % 17) : "",
          .uid = Uid(fmt::format("00000000-0000-4000-8000-{:012}", number)),
          .resource_version = fmt::format("{}", 1000 + number),
          .labels = SampleMap(random, "app.example/l", 6),
          .annotations = SampleMap(random, "tessera.dev/a", 4),
          .created = SampleTime(random, std::chrono::seconds(1)),
          .deleting = Chance(random, 5),
          .has_controller = Chance(random, 70)};
}

// metadata.managedFields, the largest part of many objects.
const std::string& ManagedFields() {
  static const std::string text = [] {
    std::string fields = R"({"f:metadata":{"f:labels":{".":{},)";
    for (int i = 0; i < 24; ++i) fields += fmt::format(R"("f:app.example/l{}":{{}},)", i);
    return fields + R"("f:last":{}}},"f:spec":{"f:containers":{}}})";
  }();
  return text;
}

Json JsonOfMeta(const ObjectMeta& meta) {
  Json out = Json::MakeObject({{"name", Json::String(meta.name)},
                               {"uid", Json::String(meta.uid.str())},
                               {"resourceVersion", Json::String(meta.resource_version)},
                               {"creationTimestamp", Json::String(Rfc3339(meta.created))}});
  if (!meta.ns.empty()) out.Set("namespace", Json::String(meta.ns));
  if (!meta.labels.empty()) out.Set("labels", Json::StringObject(meta.labels));
  if (!meta.annotations.empty()) out.Set("annotations", Json::StringObject(meta.annotations));
  if (meta.deleting) out.Set("deletionTimestamp", Json::String("2026-01-01T00:00:00Z"));
  if (meta.has_controller) {
    const Json other = Json::MakeObject({{"uid", Json::String("o")}, {"kind", Json::String("X")}});
    Json owner = other;
    owner.Set("controller", Json::Bool(true));
    out.Set("ownerReferences", Json::MakeArray({std::move(owner), other}));
  }
  Json manager = Json::MakeObject(
      {{"manager", Json::String("kubelet")}, {"fieldsV1", ParseJson(ManagedFields()).value()}});
  out.Set("managedFields", Json::MakeArray({manager}));
  return out;
}

std::string MessageOfTime(WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return WireWriter()
      .Varint(1, static_cast<uint64_t>(seconds.time_since_epoch().count()))
      .Varint(2, static_cast<uint64_t>((time - seconds).count()))
      .text();
}

std::string MessageOfMeta(const ObjectMeta& meta) {
  WireWriter out;
  out.Bytes(1, meta.name).Bytes(2, "").Bytes(3, meta.ns).Bytes(4, "").Bytes(5, meta.uid.str());
  out.Bytes(6, meta.resource_version).Varint(7, 3).Bytes(8, MessageOfTime(meta.created));
  if (meta.deleting) out.Bytes(9, MessageOfTime(meta.created));
  for (const auto& [key, value] : meta.labels) out.Entry(11, key, value);
  for (const auto& [key, value] : meta.annotations) out.Entry(12, key, value);
  if (meta.has_controller) {
    out.Bytes(13, WireWriter().Bytes(1, "X").Bytes(4, "o").Varint(6, 1).text());
    out.Bytes(13, WireWriter().Bytes(1, "X").Bytes(4, "o").text());
  }
  const std::string fields = WireWriter().Bytes(1, ManagedFields()).text();
  out.Bytes(17, WireWriter().Bytes(1, "kubelet").Bytes(7, fields).text());
  return out.text();
}

void AddQuantities(WireWriter* out, uint32_t field, const StringMap& map) {
  for (const auto& [key, value] : map) {
    out->Entry(field, key, WireWriter().Bytes(1, value).text());
  }
}

std::string MessageOfContainer(const Container& container) {
  WireWriter resources;
  AddQuantities(&resources, 1, container.limits);
  AddQuantities(&resources, 2, container.requests);
  WireWriter out;
  out.Bytes(1, container.name).Bytes(2, "registry.example/team/train:1.2.3");
  for (int i = 0; i < 8; ++i) out.Bytes(7, WireWriter().Bytes(1, "ENV").Bytes(2, "value").text());
  out.Bytes(8, resources.text());
  const std::string mount = WireWriter().Bytes(1, "token").Varint(2, 1).Bytes(3, "/var/run").text();
  out.Bytes(9, mount).Bytes(13, "/dev/termination-log").Bytes(14, "IfNotPresent");
  if (container.kind == ContainerKind::kSidecar) out.Bytes(24, "Always");
  return out.text();
}

Json JsonOfContainer(const Container& container) {
  Json env = Json::MakeArray();
  for (int i = 0; i < 8; ++i) {
    env.Append(Json::MakeObject({{"name", Json::String("ENV")}, {"value", Json::String("value")}}));
  }
  Json out = Json::MakeObject(
      {{"name", Json::String(container.name)},
       {"image", Json::String("registry.example/team/train:1.2.3")},
       {"env", std::move(env)},
       {"resources", Json::MakeObject({{"limits", Json::StringObject(container.limits)},
                                       {"requests", Json::StringObject(container.requests)}})},
       {"terminationMessagePath", Json::String("/dev/termination-log")},
       {"imagePullPolicy", Json::String("IfNotPresent")}});
  if (container.kind == ContainerKind::kSidecar) out.Set("restartPolicy", Json::String("Always"));
  return out;
}

Json ObjectJson(std::string_view kind, const ObjectMeta& meta) {
  return Json::MakeObject({{"apiVersion", Json::String("v1")},
                           {"kind", Json::String(kind)},
                           {"metadata", JsonOfMeta(meta)}});
}

}  // namespace

PodObject SamplePod(Random& random, int number) {
  PodObject pod{.meta = SampleMeta(random, "pod", number, true),
                .node_name = Chance(random, 80) ? fmt::format("node-{}", random.Below(5000)) : "",
                .scheduler_name = "default-scheduler",
                .phase = static_cast<PodPhase>(random.Below(5)),
                .priority = static_cast<int32_t>(random.Below(2000)) - 1000};
  if (Chance(random, 10)) pod.gates = {"tessera.dev/quota", "other.example/gate"};
  if (Chance(random, 10)) pod.nominated_node = "node-7";
  if (!pod.node_name.empty()) pod.scheduled_at = SampleTime(random, std::chrono::seconds(1));
  const auto add = [&](ContainerKind kind) {
    const std::string name = fmt::format("c{}", pod.containers.size());
    pod.containers.push_back({name, kind, SampleQuantities(random), SampleQuantities(random)});
  };
  if (Chance(random, 20)) add(ContainerKind::kInit);
  if (Chance(random, 20)) add(ContainerKind::kSidecar);
  for (uint64_t i = 1 + random.Below(2); i > 0; --i) add(ContainerKind::kMain);
  return pod;
}

NodeObject SampleNode(Random& random, int number) {
  NodeObject node{.meta = SampleMeta(random, "node", number, false),
                  .unschedulable = Chance(random, 10),
                  .ready = Chance(random, 90),
                  .capacity = SampleQuantities(random),
                  .allocatable = SampleQuantities(random)};
  if (Chance(random, 80)) node.internal_ip = fmt::format("10.0.{}.{}", number % 250, number / 250);
  if (Chance(random, 30)) node.taints = {{"a", "b", "NoSchedule"}, {"c", "", "NoExecute"}};
  return node;
}

ConfigMapObject SampleConfigMap(Random& random, int number) {
  return {.meta = SampleMeta(random, "map", number, true), .data = SampleMap(random, "key", 5)};
}

LeaseObject SampleLease(Random& random, int number) {
  return {.meta = SampleMeta(random, "lease", number, true),
          .holder = Chance(random, 80) ? fmt::format("holder-{}", random.Below(9)) : "",
          .duration = std::chrono::seconds(random.Below(60)),
          .acquire_time = SampleTime(random, std::chrono::microseconds(1)),
          .renew_time = SampleTime(random, std::chrono::microseconds(1)),
          .transitions = static_cast<int32_t>(random.Below(100))};
}

PodDisruptionBudgetObject SampleBudget(Random& random, int number) {
  PodDisruptionBudgetObject budget{.meta = SampleMeta(random, "pdb", number, true),
                                   .disruptions_allowed = static_cast<int32_t>(random.Below(4))};
  if (Chance(random, 90)) {
    auto& all = budget.selector.emplace().requirements;
    using Operator = LabelSelector::Operator;
    if (Chance(random, 80)) all.push_back({"app", Operator::kIn, {"train"}});
    if (Chance(random, 30)) all.push_back({"tier", Operator::kNotIn, {"a", "b"}});
    if (Chance(random, 30)) all.push_back({"track", Operator::kExists, {}});
    if (Chance(random, 30)) all.push_back({"canary", Operator::kDoesNotExist, {}});
  }
  if (Chance(random, 20)) budget.disrupted_pods = {"pod-1", "pod-2"};
  return budget;
}

namespace {

// The first requirement is a matchLabels entry; these are the others.
constexpr const char* kOperators[] = {"In", "NotIn", "Exists", "DoesNotExist"};
bool IsMatchLabel(const LabelSelector::Requirement& requirement) {
  return requirement.key == "app";
}

}  // namespace

std::string JsonOf(const PodDisruptionBudgetObject& budget) {
  Json spec = Json::MakeObject({{"minAvailable", Json::Int(1)}});
  if (budget.selector) {
    Json labels = Json::MakeObject(), expressions = Json::MakeArray();
    for (const LabelSelector::Requirement& requirement : budget.selector->requirements) {
      if (IsMatchLabel(requirement)) {
        labels.Set(requirement.key, Json::String(requirement.values[0]));
        continue;
      }
      Json values = Json::MakeArray();
      for (const std::string& value : requirement.values) values.Append(Json::String(value));
      expressions.Append(Json::MakeObject(
          {{"key", Json::String(requirement.key)},
           {"operator", Json::String(kOperators[static_cast<size_t>(requirement.op)])},
           {"values", std::move(values)}}));
    }
    spec.Set("selector", Json::MakeObject({{"matchLabels", std::move(labels)},
                                           {"matchExpressions", std::move(expressions)}}));
  }
  Json disrupted_pods = Json::MakeObject();
  for (const std::string& name : budget.disrupted_pods) {
    disrupted_pods.Set(name, Json::String("2026-01-01T00:00:00Z"));
  }
  Json out = ObjectJson("PodDisruptionBudget", budget.meta);
  out.Set("spec", std::move(spec));
  out.Set("status", Json::MakeObject({{"disruptionsAllowed", Json::Int(budget.disruptions_allowed)},
                                      {"disruptedPods", std::move(disrupted_pods)}}));
  return out.Serialize();
}

std::string JsonOf(const PodObject& pod) {
  Json init = Json::MakeArray();
  Json main = Json::MakeArray();
  for (const Container& container : pod.containers) {
    (container.kind == ContainerKind::kMain ? main : init).Append(JsonOfContainer(container));
  }
  Json gates = Json::MakeArray();
  for (const std::string& gate : pod.gates) {
    gates.Append(Json::MakeObject({{"name", Json::String(gate)}}));
  }
  Json spec = Json::MakeObject({{"containers", std::move(main)},
                                {"schedulerName", Json::String(pod.scheduler_name)},
                                {"priority", Json::Int(pod.priority)}});
  if (!init.items().empty()) spec.Set("initContainers", std::move(init));
  if (!gates.items().empty()) spec.Set("schedulingGates", std::move(gates));
  if (!pod.node_name.empty()) spec.Set("nodeName", Json::String(pod.node_name));
  Json out = ObjectJson("Pod", pod.meta);
  out.Set("spec", std::move(spec));
  Json status = Json::MakeObject({{"phase", Json::String(kPhases[static_cast<int>(pod.phase)])},
                                  {"hostIP", Json::String("10.0.0.1")}});
  const bool scheduled = pod.scheduled_at != WallTime{};
  const std::string since = Rfc3339(pod.scheduled_at);
  for (const auto& [type, holds] : {std::pair("Ready", true), {"PodScheduled", scheduled}}) {
    status.EnsureArray("conditions")
        .value()
        ->Append(Json::MakeObject({{"type", Json::String(type)},
                                   {"status", Json::String(holds ? "True" : "False")},
                                   {"lastTransitionTime", Json::String(since)}}));
  }
  if (!pod.nominated_node.empty()) {
    status.Set("nominatedNodeName", Json::String(pod.nominated_node));
  }
  for (const Container& container : pod.containers) {
    const auto id = pod.container_ids.find(container.name);
    if (id == pod.container_ids.end()) continue;
    const bool main = container.kind == ContainerKind::kMain;
    const bool ended = pod.ended_containers.contains(container.name);
    Json state = Json::MakeObject({{ended ? "terminated" : "running", Json::MakeObject()}});
    status.EnsureArray(main ? "containerStatuses" : "initContainerStatuses")
        .value()
        ->Append(Json::MakeObject({{"name", Json::String(container.name)},
                                   {"state", std::move(state)},
                                   {"ready", Json::Bool(true)},
                                   {"containerID", Json::String(id->second)}}));
  }
  out.Set("status", std::move(status));
  return out.Serialize();
}

std::string JsonOf(const NodeObject& node) {
  Json taints = Json::MakeArray();
  for (const Taint& taint : node.taints) {
    Json entry = Json::MakeObject(
        {{"key", Json::String(taint.key)}, {"effect", Json::String(taint.effect)}});
    if (!taint.value.empty()) entry.Set("value", Json::String(taint.value));
    taints.Append(std::move(entry));
  }
  Json out = ObjectJson("Node", node.meta);
  Json spec = Json::MakeObject({{"taints", std::move(taints)}});
  if (node.unschedulable) spec.Set("unschedulable", Json::Bool(true));
  out.Set("spec", std::move(spec));
  const auto condition = [](std::string_view type, bool holds) {
    return Json::MakeObject(
        {{"type", Json::String(type)}, {"status", Json::String(holds ? "True" : "False")}});
  };
  const auto address = [](std::string_view type, std::string_view value) {
    return Json::MakeObject({{"type", Json::String(type)}, {"address", Json::String(value)}});
  };
  Json addresses = Json::MakeArray({address("Hostname", node.meta.name)});
  if (!node.internal_ip.empty()) {
    addresses.Append(address("InternalIP", node.internal_ip));
    addresses.Append(address("InternalIP", "fd00::1"));
  }
  out.Set("status",
          Json::MakeObject({{"capacity", Json::StringObject(node.capacity)},
                            {"allocatable", Json::StringObject(node.allocatable)},
                            {"conditions", Json::MakeArray({condition("DiskPressure", !node.ready),
                                                            condition("Ready", node.ready)})},
                            {"addresses", std::move(addresses)}}));
  return out.Serialize();
}

std::string JsonOf(const ConfigMapObject& map) {
  Json out = ObjectJson("ConfigMap", map.meta);
  if (!map.data.empty()) out.Set("data", Json::StringObject(map.data));
  return out.Serialize();
}

std::string JsonOf(const LeaseObject& lease) {
  Json out = ObjectJson("Lease", lease.meta);
  out.Set("spec",
          Json::MakeObject({{"holderIdentity", Json::String(lease.holder)},
                            {"leaseDurationSeconds", Json::Int(lease.duration.count())},
                            {"acquireTime", Json::String(Rfc3339Micros(lease.acquire_time))},
                            {"renewTime", Json::String(Rfc3339Micros(lease.renew_time))},
                            {"leaseTransitions", Json::Int(lease.transitions)}}));
  return out.Serialize();
}

std::string MessageOf(const PodObject& pod) {
  WireWriter spec;
  spec.Bytes(1, WireWriter().Bytes(1, "token").text());
  for (const Container& c : pod.containers) {
    if (c.kind == ContainerKind::kMain) spec.Bytes(2, MessageOfContainer(c));
  }
  spec.Bytes(3, "Always").Varint(4, 30).Bytes(10, pod.node_name).Bytes(19, pod.scheduler_name);
  for (const Container& c : pod.containers) {
    if (c.kind != ContainerKind::kMain) spec.Bytes(20, MessageOfContainer(c));
  }
  spec.Varint(25, static_cast<uint64_t>(static_cast<int64_t>(pod.priority)));
  for (const std::string& gate : pod.gates) spec.Bytes(38, WireWriter().Bytes(1, gate).text());
  WireWriter status;
  status.Bytes(1, kPhases[static_cast<int>(pod.phase)]).Bytes(5, "10.0.0.1");
  const bool scheduled = pod.scheduled_at != WallTime{};
  for (const auto& [type, holds] : {std::pair("Ready", true), {"PodScheduled", scheduled}}) {
    status.Bytes(2, WireWriter()
                        .Bytes(1, type)
                        .Bytes(2, holds ? "True" : "False")
                        .Bytes(3, "")
                        .Bytes(4, MessageOfTime(pod.scheduled_at))
                        .text());
  }
  status.Bytes(11, pod.nominated_node);
  for (const Container& c : pod.containers) {
    const auto id = pod.container_ids.find(c.name);
    if (id == pod.container_ids.end()) continue;
    WireWriter container_status;
    container_status.Bytes(1, c.name);
    container_status.Bytes(
        2, WireWriter().Bytes(pod.ended_containers.contains(c.name) ? 3 : 2, "").text());
    container_status.Varint(4, 1).Bytes(8, id->second);
    status.Bytes(c.kind == ContainerKind::kMain ? 8 : 10, container_status.text());
  }
  return WireWriter()
      .Bytes(1, MessageOfMeta(pod.meta))
      .Bytes(2, spec.text())
      .Bytes(3, status.text())
      .text();
}

std::string MessageOf(const NodeObject& node) {
  WireWriter spec;
  spec.Bytes(1, "10.1.0.0/24").Varint(4, node.unschedulable ? 1 : 0);
  for (const Taint& taint : node.taints) {
    spec.Bytes(5, WireWriter()
                      .Entry(9, "", "")
                      .Bytes(1, taint.key)
                      .Bytes(2, taint.value)
                      .Bytes(3, taint.effect)
                      .text());
  }
  WireWriter status;
  AddQuantities(&status, 1, node.capacity);
  AddQuantities(&status, 2, node.allocatable);
  status.Entry(4, "DiskPressure", node.ready ? "False" : "True");
  status.Entry(4, "Ready", node.ready ? "True" : "False");
  status.Entry(5, "Hostname", node.meta.name);
  if (!node.internal_ip.empty()) {
    status.Entry(5, "InternalIP", node.internal_ip).Entry(5, "InternalIP", "fd00::1");
  }
  return WireWriter()
      .Bytes(1, MessageOfMeta(node.meta))
      .Bytes(2, spec.text())
      .Bytes(3, status.text())
      .text();
}

std::string MessageOf(const ConfigMapObject& map) {
  WireWriter out;
  out.Bytes(1, MessageOfMeta(map.meta));
  for (const auto& [key, value] : map.data) out.Entry(2, key, value);
  out.Entry(3, "binary", std::string("\0\xff", 2));
  return out.text();
}

std::string MessageOf(const LeaseObject& lease) {
  const std::string spec = WireWriter()
                               .Bytes(1, lease.holder)
                               .Varint(2, static_cast<uint64_t>(lease.duration.count()))
                               .Bytes(3, MessageOfTime(lease.acquire_time))
                               .Bytes(4, MessageOfTime(lease.renew_time))
                               .Varint(5, static_cast<uint64_t>(lease.transitions))
                               .text();
  return WireWriter().Bytes(1, MessageOfMeta(lease.meta)).Bytes(2, spec).text();
}

std::string MessageOf(const PodDisruptionBudgetObject& budget) {
  WireWriter spec;
  spec.Bytes(1, WireWriter().Varint(1, 0).Varint(2, 1).text());
  if (budget.selector) {
    WireWriter selector;
    for (const LabelSelector::Requirement& requirement : budget.selector->requirements) {
      if (IsMatchLabel(requirement)) {
        selector.Entry(1, requirement.key, requirement.values[0]);
        continue;
      }
      WireWriter expression;
      expression.Bytes(1, requirement.key)
          .Bytes(2, kOperators[static_cast<size_t>(requirement.op)]);
      for (const std::string& value : requirement.values) expression.Bytes(3, value);
      selector.Bytes(2, expression.text());
    }
    spec.Bytes(2, selector.text());
  }
  WireWriter status;
  for (const std::string& name : budget.disrupted_pods) status.Entry(2, name, MessageOfTime({}));
  status.Varint(3, static_cast<uint64_t>(budget.disruptions_allowed));
  return WireWriter()
      .Bytes(1, MessageOfMeta(budget.meta))
      .Bytes(2, spec.text())
      .Bytes(3, status.text())
      .text();
}

}  // namespace tessera::kube::testing
