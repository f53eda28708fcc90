// SPDX-License-Identifier: Apache-2.0
#include "src/console/json_of.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/strings.h"
#include "src/device/model.h"
#include "src/device/node.h"

namespace tessera::console {
namespace {

using Device = device::SharedInventory::Device;
using ledger::ClusterLedger;
using ledger::NodeEntry;
using ledger::PodEntry;

int64_t Seconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

// Writes a JSON object directly into a string. It builds no Json value first, because a new viewer
// of a large cluster needs ten thousand such texts.
class ObjectText {
 public:
  explicit ObjectText(std::string* out) : out_(*out) { out_.push_back('{'); }
  void End() { out_.push_back('}'); }

  void Add(std::string_view key, std::string_view value) {
    Key(key);
    AppendJsonString(value, &out_);
  }
  void Add(std::string_view key, int64_t value) {
    Key(key);
    fmt::format_to(std::back_inserter(out_), "{}", value);
  }
  void AddBool(std::string_view key, bool value) {
    Key(key);
    out_ += value ? "true" : "false";
  }
  // The caller appends the value.
  void Key(std::string_view key) {
    if (out_.back() != '{') out_.push_back(',');
    out_.push_back('"');
    out_ += key;
    out_ += "\":";
  }

 private:
  std::string& out_;
};

void AddHealth(const Device& found, ObjectText* out) {
  if (found.gpu == nullptr) {
    out->Add("state", "gone");
    out->Add("why", "no longer on the node");
    return;
  }
  const bool of_slice = found.slice != nullptr && found.gpu->health.ok();
  const device::Health& health = of_slice ? found.slice->health : found.gpu->health;
  if (health.state != device::Health::State::kHealthy) out->Add("state", NameOf(health.state));
  if (!health.reason.empty()) out->Add("why", health.reason);
}

// A pod's share of one device.
struct ShareHolder {
  const PodEntry* pod = nullptr;
  device::Share share;
};

// By UUID of the device, the pods that hold a part of it.
using SharesByUuid = std::unordered_map<std::string, std::vector<ShareHolder>>;

SharesByUuid HoldersOn(const std::string& node, const ClusterLedger& ledger) {
  SharesByUuid holders;
  for (const Uid& uid : ledger.PodsOn(node)) {
    const PodEntry& pod = ledger.pods().at(uid);
    for (const auto& [uuid, share] : ledger::SharesOf(pod)) holders[uuid].push_back({&pod, share});
  }
  return holders;
}

void AppendHolders(const std::vector<ShareHolder>& holders, const ViewerRights& rights,
                   std::string* out) {
  out->push_back('[');
  for (const ShareHolder& holder : holders) {
    const std::string& ns = holder.pod->request.ns;
    const bool visible = !rights.sees_namespace || rights.sees_namespace(ns);
    if (!visible && rights.other_tenants == OtherTenantsDetail::kSums) continue;
    *out += out->back() == '[' ? "[" : ",[";
    AppendJsonString(holder.pod->request.uid.str(), out);
    fmt::format_to(std::back_inserter(*out), ",{},{}", holder.share.compute.count(),
                   holder.share.memory.count());
    if (!visible && rights.other_tenants == OtherTenantsDetail::kNamespaces) {
      out->push_back(',');
      AppendJsonString(ns, out);
    }
    out->push_back(']');
  }
  out->push_back(']');
}

struct DeviceContext {
  const ClusterLedger& ledger;
  const NodeEntry& node;
  const std::string& model;  // of the node
  const SharesByUuid& holders;
  const ViewerRights& rights;
};

void AppendDevice(const DeviceContext& context, size_t index, std::string* text) {
  const auto& [ledger, node, model, holders, rights] = context;
  const placement::GpuSpec spec = ledger.cluster().gpu(node.id, index);
  const placement::GpuState& state = ledger.cluster().node(node.id).gpus[index];
  const Device found = node.node.inventory.Find(spec.uuid);
  std::string name = found.gpu == nullptr ? "-" : fmt::format("{}", found.gpu->index);
  if (found.slice != nullptr) name += fmt::format(":{}", found.slice->gpu_instance);
  ObjectText out(text);
  out.Add("uuid", spec.uuid);
  out.Add("name", name);
  const std::string own_model = device::ShortModel(spec.model);
  if (own_model != model) out.Add("model", own_model);
  out.Add("memory", spec.memory.count());
  const int64_t used = state.total_bytes - state.free_bytes;
  if (used > 0) out.Add("used", used);
  const int64_t used_milli = kWholeGpu.count() - state.free_milli;
  if (used_milli != 0) out.Add("usedMilli", used_milli);
  if (!spec.mig_profile.empty()) out.Add("slice", spec.mig_profile);
  AddHealth(found, &out);
  if (found.gpu != nullptr && found.gpu->numa_node) {
    out.Add("numa", *found.gpu->numa_node);
  }
  if (const auto held = holders.find(spec.uuid); held != holders.end()) {
    out.Key("held");
    AppendHolders(held->second, rights, text);
  }
  out.End();
}

std::string_view StateOf(const PodEntry& pod, bool running) {
  if (pod.deleting) return "deleting";
  if (pod.binding_state == ledger::BindingState::kWaiting) return "waiting";
  return running ? "running" : "bound";
}

constexpr std::string_view kOtherTenants[] = {"namespaces", "shares", "sums"};

}  // namespace

std::string_view NameOf(OtherTenantsDetail others) {
  return kOtherTenants[static_cast<size_t>(others)];
}

std::optional<OtherTenantsDetail> OtherTenantsDetailOf(std::string_view name) {
  const auto* found = std::ranges::find(kOtherTenants, name);
  if (found == std::end(kOtherTenants)) return std::nullopt;
  return static_cast<OtherTenantsDetail>(found - std::begin(kOtherTenants));
}

std::string NodeJson(const ClusterLedger& ledger, const NodeEntry& node,
                     const ViewerRights& rights) {
  const device::NodeInventory& inventory = node.node.inventory.without_uuids();
  const std::string model = device::ShortModelOf(inventory);
  std::string text;
  ObjectText out(&text);
  out.Add("name", node.node.name);
  out.Add("pool", node.node.pool);
  out.Add("model", model);
  out.AddBool("ready", node.ready);
  out.AddBool("cordoned", node.unschedulable);
  out.Add("driver", inventory.driver_version);
  std::string problem = node.problem;
  for (const std::string& other : {inventory.problem, inventory.runtime_problem}) {
    if (problem.empty()) problem = other;
  }
  if (!problem.empty()) out.Add("problem", problem);
  out.Key("gpus");
  text.push_back('[');
  if (node.id != placement::kNoNode) {
    const SharesByUuid holders = HoldersOn(node.node.name, ledger);
    const DeviceContext context{ledger, node, model, holders, rights};
    const size_t count = ledger.cluster().node(node.id).gpus.size();
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) text.push_back(',');
      AppendDevice(context, i, &text);
    }
  }
  text.push_back(']');
  // A GPU in MIG mode is offered as its slices. If it has no slices, it is no device, and is listed
  // under "mig" only.
  std::string without_slices;
  for (const device::Gpu& gpu : inventory.gpus) {
    if (!gpu.mig || !gpu.mig->empty()) continue;
    without_slices += fmt::format("{}{}", without_slices.empty() ? "" : ",", gpu.index);
  }
  if (!without_slices.empty()) {
    out.Key("mig");
    text += fmt::format("[{}]", without_slices);
  }
  out.End();
  return text;
}

Json JsonOfLinks(const device::NodeInventory& inventory) {
  Json links = Json::MakeArray();
  for (size_t a = 1; a < inventory.links.size(); ++a) {
    for (size_t b = 0; b < a; ++b) links.Append(Json::String(NameOf(inventory.links.At(a, b))));
  }
  return links;
}

std::string PodJson(const PodEntry& pod, device::MemoryUnit unit, std::string_view why,
                    const PodRunState& run) {
  std::string text;
  ObjectText out(&text);
  out.Add("uid", pod.request.uid.str());
  out.Add("namespace", pod.request.ns);
  out.Add("name", pod.request.name);
  out.Add("state", StateOf(pod, run.running));
  out.Add("node", pod.node);
  out.Add("request", device::RequestText(*pod.request.devices, unit));
  out.Add("created", Seconds(pod.created));
  if (run.containers.restarts > 0) out.Add("restarts", int64_t{run.containers.restarts});
  for (const std::string_view reason :
       {std::string_view(pod.problem()), why, std::string_view(run.containers.reason)}) {
    if (reason.empty()) continue;
    out.Add("why", reason);
    break;
  }
  out.End();
  return text;
}

}  // namespace tessera::console
