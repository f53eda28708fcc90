// SPDX-License-Identifier: Apache-2.0
#include "src/cli/view.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "src/base/strings.h"
#include "src/device/node.h"

namespace tessera::cli {
namespace {

using ledger::NodeEntry;
using ledger::PodEntry;

bool PodComesBefore(const PodEntry* a, const PodEntry* b) {
  return std::tie(a->request.ns, a->request.name, a->request.uid) <
         std::tie(b->request.ns, b->request.name, b->request.uid);
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
    }
  }
  return row.back();
}

}  // namespace

size_t NodeRow::idle_devices() const {
  return static_cast<size_t>(std::ranges::count_if(
      devices, [](const DeviceView& d) { return d.idle() && d.unhealthy_reason.empty(); }));
}
size_t NodeRow::unhealthy_devices() const {
  return static_cast<size_t>(std::ranges::count_if(
      devices, [](const DeviceView& d) { return !d.unhealthy_reason.empty(); }));
}
int64_t NodeRow::used_milli() const {
  int64_t sum = 0;
  for (const DeviceView& device : devices) sum += device.used_milli;
  return sum;
}
Bytes NodeRow::memory() const {
  Bytes sum;
  for (const DeviceView& device : devices) sum += device.memory;
  return sum;
}
Bytes NodeRow::used_memory() const {
  Bytes sum;
  for (const DeviceView& device : devices) sum += device.used_memory;
  return sum;
}

ClusterView::ClusterView(const ledger::ClusterLedger& ledger) : ledger_(ledger) {
  std::vector<const PodEntry*> pods;
  for (const auto& [uid, pod] : ledger.pods()) {
    if (pod.request.devices->requests_devices() && !pod.node.empty()) pods.push_back(&pod);
  }
  std::ranges::sort(pods, PodComesBefore);
  for (const PodEntry* pod : pods) {
    pods_[pod->node].push_back(pod);
    for (const auto& [uuid, share] : ledger::SharesOf(*pod)) holders_[uuid].push_back({pod, share});
  }
}

DeviceView ClusterView::Describe(const NodeEntry& entry, size_t position) const {
  const std::string uuid = ledger_.cluster().uuid(entry.id, position);
  const placement::GpuState& state = ledger_.cluster().node(entry.id).gpus[position];
  const auto [gpu, slice] = entry.node.inventory.Find(uuid);
  DeviceView view{.uuid = uuid,
                  .name = "-",
                  .gpu = gpu,
                  .slice = slice,
                  .memory = Bytes(state.total_bytes),
                  .used_memory = Bytes(std::max<int64_t>(0, state.total_bytes - state.free_bytes)),
                  .used_milli = kWholeGpu.count() - state.free_milli};
  if (const auto holders = holders_.find(uuid); holders != holders_.end()) {
    for (const PodShare& pod_share : holders->second) {
      if (pod_share.pod->node == entry.node.name) view.holders.push_back(pod_share);
    }
  }
  if (view.gpu == nullptr) {
    view.unhealthy_reason = "no longer on the node";
    return view;
  }
  view.name = fmt::format("{}", view.gpu->index);
  bool healthy = view.gpu->health.ok();
  (healthy ? view.suspect_reason : view.unhealthy_reason) = view.gpu->health.reason;
  if (view.slice != nullptr) {
    view.name += fmt::format(":{}", view.slice->gpu_instance);
    healthy = healthy && view.slice->health.ok();
    if (view.unhealthy_reason.empty()) view.unhealthy_reason = view.slice->health.reason;
  }
  if (!healthy && view.unhealthy_reason.empty()) view.unhealthy_reason = "unhealthy";
  return view;
}

NodeRow ClusterView::Describe(const NodeEntry& entry) const {
  NodeRow view{.entry = &entry,
               .model = device::ShortModelOf(entry.node.inventory.without_uuids())};
  if (entry.id != placement::kNoNode) {
    const size_t count = ledger_.cluster().node(entry.id).gpus.size();
    for (size_t i = 0; i < count; ++i) view.devices.push_back(Describe(entry, i));
  }
  const auto pods = pods_.find(entry.node.name);
  if (pods != pods_.end()) view.pods = pods->second;
  return view;
}

std::vector<NodeRow> ClusterView::Nodes() const {
  std::vector<NodeRow> nodes;
  for (const auto& [name, entry] : ledger_.nodes()) {
    if (entry.has_gpus_or_problem()) nodes.push_back(Describe(entry));
  }
  return nodes;
}

Result<NodeRow> ClusterView::Node(std::string_view name) const {
  const auto found = ledger_.nodes().find(name);
  if (found != ledger_.nodes().end()) return Describe(found->second);
  std::vector<std::string> known;
  for (const auto& [other, entry] : ledger_.nodes()) known.push_back(other);
  return Error(Code::kNotFound, "there is no node \"{}\"{}", name, DidYouMean(name, known));
}

std::vector<const PodEntry*> ClusterView::Pods(std::string_view ns) const {
  std::vector<const PodEntry*> pods;
  for (const auto& [uid, pod] : ledger_.pods()) {
    // A pod with an invalid request has a problem, and a pod that requests no GPU has none.
    const bool about_gpus = pod.request.devices->requests_devices() || !pod.problem().empty();
    if (about_gpus && (ns.empty() || pod.request.ns == ns)) pods.push_back(&pod);
  }
  std::ranges::sort(pods, PodComesBefore);
  return pods;
}

std::vector<DeviceView> ClusterView::DevicesOf(const PodEntry& pod) const {
  std::vector<DeviceView> devices;
  const auto node = ledger_.nodes().find(pod.node);
  if (node == ledger_.nodes().end() || node->second.id == placement::kNoNode) return devices;
  std::set<size_t> positions;
  for (const auto& [uuid, share] : ledger::SharesOf(pod)) {
    if (const auto position = ledger_.cluster().PositionOf(node->second.id, uuid)) {
      positions.insert(*position);
    }
  }
  for (const size_t position : positions) devices.push_back(Describe(node->second, position));
  return devices;
}

std::string DidYouMean(std::string_view wanted, const std::vector<std::string>& names) {
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const std::string& name : names) {
    const bool inside = wanted.size() >= 3 && name.find(wanted) != std::string::npos;
    const size_t distance = inside ? 0 : EditDistance(wanted.substr(0, 256), name.substr(0, 256));
    if (distance <= std::max<size_t>(2, wanted.size() / 4)) near.emplace_back(distance, name);
  }
  std::ranges::sort(near);
  std::string text;
  for (size_t i = 0; i < near.size() && i < 3; ++i) {
    text += text.empty() ? ": did you mean " : ", ";
    text += near[i].second;
  }
  return text.empty() ? text : text + "?";
}

}  // namespace tessera::cli
