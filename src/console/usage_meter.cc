// SPDX-License-Identifier: Apache-2.0
#include "src/console/usage_meter.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"
#include "src/formats/metric_line.h"

namespace tessera::console {
namespace {

constexpr std::string_view kAllocated = "tessera_container_gpu_allocated_seconds_total";
constexpr std::string_view kIdle = "tessera_container_gpu_idle_seconds_total";

double SecondsOf(Duration time) { return std::chrono::duration<double>(time).count(); }

Json Hours(double gpu_seconds) {
  return Json::NumberText(fmt::format("{:.4f}", gpu_seconds / 3600));
}

double PartOf(const device::Share& share) {
  return static_cast<double>(share.compute.count()) / kWholeGpu.count();
}

}  // namespace

void UsageMeter::Tick(const ledger::ClusterLedger& ledger, MonotonicTime now, WallTime wall_now) {
  const Duration gap = last_tick_ ? now - *last_tick_ : Duration::zero();
  if (!last_tick_) since_ = wall_now;
  last_tick_ = now;
  std::erase_if(series_, [&](const auto& one) { return !ledger.pods().contains(one.second.pod); });
  if (gap > kLongestGap) return;
  for (const auto& [uid, pod] : ledger.pods()) {
    if (pod.node.empty()) continue;
    UsageRow& row = RowOf(KeyOf(pod));
    for (const auto& [uuid, share] : ledger::SharesOf(pod)) {
      row.allocated += PartOf(share) * SecondsOf(gap);
    }
  }
}

UsageMeter::Key UsageMeter::KeyOf(const ledger::PodEntry& pod) const {
  const auto label = pod.labels->find(label_);
  return {pod.request.ns, label == pod.labels->end() ? "" : label->second};
}

UsageMeter::UsageRow& UsageMeter::RowOf(const Key& key) {
  const auto known = rows_.find(key);
  if (known != rows_.end()) return known->second;
  return rows_.size() < kMaxRows ? rows_[key] : rows_[{"", ""}];
}

void UsageMeter::TakePage(const ledger::ClusterLedger& ledger, const std::string& node,
                          std::string_view metrics) {
  std::map<std::pair<std::string_view, std::string_view>, const ledger::PodEntry*> pods;
  for (const Uid& uid : ledger.PodsOn(node)) {
    const ledger::PodEntry& pod = ledger.pods().at(uid);
    pods[{pod.request.ns, pod.request.name}] = &pod;
  }
  Series page;
  for (const std::string_view line : Split(metrics, '\n')) {
    if (!line.starts_with(kAllocated) && !line.starts_with(kIdle)) continue;
    const auto metric = ParseMetricLine(line);
    if (!metric) continue;
    const auto pod =
        pods.find({LabelIn(metric->labels, "namespace"), LabelIn(metric->labels, "pod")});
    if (pod == pods.end()) continue;
    Counters& counters = page[std::string(metric->labels)];
    counters.pod = pod->second->request.uid;
    (metric->name == kIdle ? counters.idle : counters.allocated) = metric->value;
  }
  for (const auto& [labels, now] : page) AddCounters(ledger.pods().at(now.pod), labels, now);
}

void UsageMeter::AddCounters(const ledger::PodEntry& pod, const std::string& labels,
                             const Counters& now) {
  const auto known = series_.find(labels);
  if (known == series_.end()) {
    if (series_.size() < kMaxSeries) series_[labels] = now;
    return;
  }
  const Counters before = std::exchange(known->second, now);
  if (!before.allocated || !before.idle || !now.allocated || !now.idle) return;
  const double allocated = *now.allocated - *before.allocated, idle = *now.idle - *before.idle;
  // The counters of a restarted agent begin at zero.
  if (allocated <= 0 || idle < 0) return;
  const std::string_view uuid = LabelIn(labels, "uuid");
  for (const auto& [held_uuid, share] : ledger::SharesOf(pod)) {
    if (held_uuid != uuid) continue;
    UsageRow& row = RowOf(KeyOf(pod));
    row.measured += PartOf(share) * allocated;
    row.idle += PartOf(share) * std::min(idle, allocated);
  }
}

Json UsageMeter::ToJson(const std::function<bool(const std::string&)>& visible, bool all) const {
  Json rows = Json::MakeArray();
  for (const auto& [key, row] : rows_) {
    const auto& [ns, value] = key;
    if (ns.empty() ? !all : !visible(ns)) continue;
    rows.Append(Json::MakeObject({{"namespace", Json::String(ns)},
                                  {"value", Json::String(value)},
                                  {"allocated", Hours(row.allocated)},
                                  {"measured", Hours(row.measured)},
                                  {"idle", Hours(row.idle)}}));
  }
  const auto since =
      std::chrono::duration_cast<std::chrono::seconds>(since_.time_since_epoch()).count();
  Json out = Json::MakeObject(
      {{"since", Json::Int(since)}, {"label", Json::String(label_)}, {"rows", std::move(rows)}});
  if (!problem_.ok()) out.Set("problem", Json::String(problem_.message()));
  return out;
}

}  // namespace tessera::console
