// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/cluster_metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/fragmentation.h"

namespace tessera::scheduler {
namespace {

using device::Dialect;
using ledger::ClusterLedger;
using ledger::PodEntry;

constexpr std::string_view kInvalid = "invalid";
constexpr std::array<int64_t, 4> kAgesInSeconds = {60, 600, 3600, 86400};

double InGpus(MilliGpu milli) {
  return static_cast<double>(milli.count()) / static_cast<double>(kWholeGpu.count());
}

Dialect DialectOf(const device::DeviceRequest& request) {
  for (const device::ContainerRequest& container : request.containers) {
    if (container.dialect != Dialect::kNone) return container.dialect;
  }
  return Dialect::kNone;
}

struct AllocatedAmounts {
  size_t whole = 0;
  std::unordered_set<std::string> shared;  // UUIDs of GPUs with shares, and of slices
  MilliGpu compute{0};

  void Add(const PodEntry& pod) {
    for (const placement::QuotaCharge& charge : *pod.charges) compute += charge.amount;
    for (const auto& [uuid, share] : ledger::SharesOf(pod)) {
      if (share.compute == kWholeGpu) {
        ++whole;
      } else {
        shared.insert(uuid);
      }
    }
  }
};

std::vector<placement::MixEntry> MixOf(const ClusterLedger& ledger) {
  std::unordered_map<placement::ShapeId, double> counts;
  for (const auto& [uid, pod] : ledger.pods()) {
    if (!pod.placed_id) continue;
    const placement::PlacedPod* placed = ledger.cluster().Find(*pod.placed_id);
    if (placed != nullptr) ++counts[placed->shape];
  }
  std::vector<placement::MixEntry> mix;
  for (const auto& [shape, count] : counts) mix.push_back({shape, count});
  std::ranges::sort(mix, [](const auto& a, const auto& b) {
    return std::pair(-a.weight, a.shape) < std::pair(-b.weight, b.shape);
  });
  if (mix.size() > kMaxMixShapes) mix.resize(kMaxMixShapes);
  return mix;
}

struct WaitingPods {
  std::map<std::string_view, size_t> by_size;
  int64_t oldest_seconds = 0;
  std::array<size_t, kAgesInSeconds.size()> older{};
};
using WaitingByReason = std::map<std::string_view, WaitingPods>;

WaitingByReason WaitingOf(const ClusterLedger& ledger, const WaitReasons& reasons, WallTime now) {
  WaitingByReason all;
  for (const auto& [uid, pod] : ledger.pods()) {
    if (pod.binding_state != ledger::BindingState::kWaiting || pod.deleting) continue;
    const std::string_view untried = pod.problem().empty() ? WaitReasons::kNotTried : kInvalid;
    WaitingPods& waiting = all[reasons.Find(uid).value_or(untried)];
    ++waiting.by_size[SizeOf(*pod.request.devices)];
    if (pod.created == WallTime{}) continue;
    const int64_t age = std::chrono::floor<std::chrono::seconds>(now - pod.created).count();
    waiting.oldest_seconds = std::max(waiting.oldest_seconds, age);
    for (size_t i = 0; i < kAgesInSeconds.size(); ++i) waiting.older[i] += age > kAgesInSeconds[i];
  }
  return all;
}

}  // namespace

void WriteAllocation(const ClusterLedger& ledger, MetricsText* text) {
  std::map<Dialect, AllocatedAmounts> allocated;
  for (const auto& [uid, pod] : ledger.pods()) {
    if (pod.placed_id) allocated[DialectOf(*pod.request.devices)].Add(pod);
  }
  const auto write = [&](std::string_view name, const auto& value_of) {
    for (const Dialect dialect : device::kDialects) {
      text->AddSample(name, MetricLabel("dialect", device::NameOf(dialect)),
                      value_of(allocated[dialect]));
    }
  };
  text->AddFamily(
      "tessera_scheduler_allocated_devices", "gauge",
      "GPUs and MIG slices that pods hold or share, by the dialect of the pods; a GPU that "
      "pods of two dialects share counts for each.");
  write("tessera_scheduler_allocated_devices", [](const AllocatedAmounts& amounts) {
    return static_cast<uint64_t>(amounts.whole + amounts.shared.size());
  });
  text->AddFamily(
      "tessera_scheduler_allocated_gpus", "gauge",
      "Compute that pods hold, in GPUs, by the dialect of the pods. A pod that requests "
      "device memory alone counts with its part of the memory.");
  write("tessera_scheduler_allocated_gpus",
        [](const AllocatedAmounts& amounts) { return InGpus(amounts.compute); });
}

double FragmentationOf(const ClusterLedger& ledger) {
  const placement::Cluster& cluster = ledger.cluster();
  const std::vector<placement::MixEntry> mix = MixOf(ledger);
  if (mix.empty()) return 0;
  placement::Fragmentation fragmentation(cluster, mix);
  double useless = 0, free = 0;
  for (placement::NodeId id = 0; id < cluster.size(); ++id) {
    const placement::NodeView node = cluster.node(id);
    if (!node->present || !node->schedulable) continue;
    for (const placement::GpuState& gpu : node.gpus) free += std::max<int>(gpu.slack, 0);
    useless += fragmentation.Of(node);
  }
  return free > 0 ? std::clamp(useless / free, 0.0, 1.0) : 0;
}

void WriteFragmentation(const ClusterLedger& ledger, MetricsText* text) {
  text->AddFamily(
      "tessera_scheduler_fragmentation_ratio", "gauge",
      "The part of the free compute that a typical pod cannot use: the mean over the pods "
      "that hold GPUs now. 0: each of these pods could use all free compute.");
  text->AddSample("tessera_scheduler_fragmentation_ratio", "", FragmentationOf(ledger));
}

void WriteQuota(const placement::Quota& quota, MetricsText* text) {
  const auto write = [&](std::string_view name, const auto& value_of) {
    for (const auto& [ns, namespace_quota] : quota.config()) {
      if (!namespace_quota.limits) continue;
      for (const placement::QuotaLimit& limit : *namespace_quota.limits) {
        text->AddSample(name,
                        MetricLabel("namespace", ns) + "," + MetricLabel("model", limit.model),
                        value_of(ns, limit));
      }
    }
  };
  text->AddFamily("tessera_scheduler_quota_limit_gpus", "gauge",
                  "GPUs of a model that a namespace may hold.");
  write("tessera_scheduler_quota_limit_gpus",
        [](const std::string&, const placement::QuotaLimit& limit) {
          return static_cast<uint64_t>(limit.gpus);
        });
  text->AddFamily("tessera_scheduler_quota_used_gpus", "gauge",
                  "GPUs of a model that the pods of a namespace with a quota hold.");
  write("tessera_scheduler_quota_used_gpus",
        [&](const std::string& ns, const placement::QuotaLimit& limit) {
          return InGpus(quota.Used(ns, limit.model));
        });
}

std::string_view SizeOf(const device::DeviceRequest& request) {
  const std::vector<std::vector<size_t>> groups = request.Groups();
  if (groups.empty()) return "unknown";
  int gpus = 0;
  bool is_whole = true;
  for (const std::vector<size_t>& group : groups) {
    int most = 0;
    for (const size_t i : group) {
      const device::ContainerRequest& container = request.containers[i];
      if (container.dialect == Dialect::kNvidiaMig) return "slice";
      most = std::max(most, container.count);
      is_whole &= container.per_gpu.compute == kWholeGpu;
    }
    gpus += most;
  }
  if (!is_whole) return gpus == 1 ? "share" : "other";
  return gpus == 0 ? "other" : placement::NameOf(placement::PodSizeOf(gpus));
}

void WriteWaitingPods(const ClusterLedger& ledger, const WaitReasons& reasons, WallTime now,
                      MetricsText* text) {
  const WaitingByReason all = WaitingOf(ledger, reasons, now);
  text->AddFamily(
      "tessera_scheduler_waiting_pods", "gauge",
      "Pods with GPUs that are not bound, by the reason at their last attempt and by the "
      "number of GPUs they request.");
  for (const auto& [reason, waiting] : all) {
    for (const auto& [size, count] : waiting.by_size) {
      text->AddSample("tessera_scheduler_waiting_pods",
                      MetricLabel("reason", reason) + "," + MetricLabel("size", size),
                      uint64_t{count});
    }
  }
  text->AddFamily("tessera_scheduler_oldest_waiting_pod_seconds", "gauge",
                  "Age of the oldest waiting pod, by the reason at its last attempt.");
  for (const auto& [reason, waiting] : all) {
    text->AddSample("tessera_scheduler_oldest_waiting_pod_seconds", MetricLabel("reason", reason),
                    static_cast<uint64_t>(waiting.oldest_seconds));
  }
  text->AddFamily(
      "tessera_scheduler_waiting_pods_by_age", "gauge",
      "Waiting pods older than the label older_than_seconds, by the reason at their last "
      "attempt.");
  for (const auto& [reason, waiting] : all) {
    for (size_t i = 0; i < kAgesInSeconds.size(); ++i) {
      text->AddSample("tessera_scheduler_waiting_pods_by_age",
                      MetricLabel("reason", reason) + "," +
                          MetricLabel("older_than_seconds", std::to_string(kAgesInSeconds[i])),
                      uint64_t{waiting.older[i]});
    }
  }
}

}  // namespace tessera::scheduler
