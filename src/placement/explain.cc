// SPDX-License-Identifier: Apache-2.0
#include "src/placement/explain.h"

#include <algorithm>
#include <numeric>

#include "src/placement/fit.h"

namespace tessera::placement {
namespace {

struct ReasonInfo {
  std::string_view label;
  std::string_view node_phrase;
  std::string_view gpu_phrase;  // after a number of GPUs: "2 held whole"
};
constexpr std::array<ReasonInfo, kUnfitReasonCount> kInfo{{
    {"nothing", "with room", "free"},
    {"gone", "gone", ""},
    {"cordoned", "unschedulable", ""},
    {"cpu", "insufficient cpu", ""},
    {"memory", "insufficient memory", ""},
    {"no-gpu", "no such GPU", ""},
    {"too-few", "too few GPUs", ""},
    {"busy", "insufficient free GPUs", ""},
    {"together", "containers that fit only one by one", ""},
    {"other-kind", "other MIG profile", "of another kind"},
    {"other-model", "other GPU model", "of another model"},
    {"other-gpu", "GPUs that the pod does not allow", "not allowed by UUID"},
    {"unhealthy", "unhealthy GPUs", "unhealthy"},
    {"too-small", "too small GPUs", "too small"},
    {"held-whole", "GPUs held whole", "held whole"},
    {"shared", "shared GPUs", "shared"},
    {"compute", "insufficient GPU compute", "short of compute"},
    {"gpu-memory", "insufficient GPU memory", "short of memory"},
}};
static_assert(static_cast<size_t>(UnfitReason::kGpuMemory) + 1 == kUnfitReasonCount);

uint8_t& CountOf(NodeShortfall& shortfall, UnfitReason reason) {
  return shortfall.gpus[static_cast<size_t>(reason)];
}

// Counts the node's GPUs by their reason for one GPU demand; false if enough GPUs have room.
bool CountGpus(const NodeView& node, const Demand& demand, size_t n, NodeShortfall* shortfall) {
  const GpuDemand& gpu_demand = demand.gpu_demands[n];
  shortfall->gpus = {};
  for (const GpuState& gpu : node.gpus)
    ++CountOf(*shortfall, ShortfallOf(gpu, gpu_demand, demand).reason);
  shortfall->gpu_demand_index = static_cast<uint8_t>(n);
  shortfall->wanted = gpu_demand.count;
  shortfall->free = CountOf(*shortfall, UnfitReason::kNothing);
  return shortfall->free < gpu_demand.count;
}

// Finds the cause of too few GPUs: the first reason without which enough GPUs would be free.
void SetCause(const Demand& demand, NodeShortfall* shortfall) {
  const GpuDemand& gpu_demand = demand.gpu_demands[shortfall->gpu_demand_index];
  int64_t left = shortfall->gpu_count - CountOf(*shortfall, UnfitReason::kOtherKind);
  shortfall->unresolvable = true;
  const auto exclude = [&](UnfitReason reason) {
    left -= CountOf(*shortfall, reason);
    if (left >= gpu_demand.count) return false;
    shortfall->reason = reason;
    return true;
  };
  if (left < gpu_demand.count) {
    shortfall->reason = left == 0 ? UnfitReason::kNoGpu : UnfitReason::kTooFew;
    return;
  }
  for (const UnfitReason reason : {UnfitReason::kOtherModel, UnfitReason::kOtherGpu,
                                   UnfitReason::kTooSmall, UnfitReason::kUnhealthy}) {
    if (exclude(reason)) return;
  }
  shortfall->unresolvable = false;
  shortfall->reason = UnfitReason::kBusy;
  if (gpu_demand.whole()) return;
  for (const UnfitReason reason :
       {UnfitReason::kHeldWhole, UnfitReason::kCompute, UnfitReason::kGpuMemory}) {
    if (CountOf(*shortfall, reason) > CountOf(*shortfall, shortfall->reason))
      shortfall->reason = reason;
  }
}

std::string MemoryText(int64_t bytes) {
  if (bytes % (int64_t{1} << 30) == 0) return fmt::format("{} GiB", bytes >> 30);
  if (bytes % (int64_t{1} << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} bytes", bytes);
}

std::string ThousandthsText(int64_t milli) { return fmt::format("{:.6g}", milli / 1000.0); }

// "3 GPUs", "1 GPU with 0.3 of its compute and 8 GiB", "2 1g.10gb".
std::string GpuDemandText(const GpuDemand& gpu_demand, const Demand& demand,
                          const Cluster& cluster) {
  std::string text =
      gpu_demand.kind != kNoMigProfile
          ? fmt::format("{} {}", gpu_demand.count, cluster.NameOfKind(gpu_demand.kind))
          : fmt::format("{} GPU{}", gpu_demand.count, gpu_demand.count == 1 ? "" : "s");
  if (demand.models.any()) {
    std::string_view separator = " of model ";
    for (size_t model = 0; model < cluster.model_count(); ++model) {
      if (!demand.models.test(model)) continue;
      text += separator;
      text += cluster.NameOf(static_cast<ModelId>(model));
      separator = " or ";
    }
  }
  if (!demand.gpu_filter.empty()) {
    text += fmt::format("{} {} named by UUID", demand.gpu_filter_excludes ? ", none of" : " among",
                        demand.gpu_filter.size());
  }
  std::string_view separator = " with ";
  if (!gpu_demand.whole() && gpu_demand.milli > MilliGpu(0)) {
    text += fmt::format(" with {} of the compute", ThousandthsText(gpu_demand.milli.count()));
    separator = " and ";
  }
  if (gpu_demand.bytes > Bytes(0))
    text += fmt::format("{}{}", separator, MemoryText(gpu_demand.bytes.count()));
  return text;
}

}  // namespace

std::string_view MetricLabelOf(UnfitReason reason) {
  return kInfo[static_cast<size_t>(reason)].label;
}

GpuShortfall ShortfallOf(const GpuState& gpu, const GpuDemand& gpu_demand, const Demand& demand) {
  const int64_t milli = gpu_demand.milli.count(), bytes = gpu_demand.bytes.count();
  if (gpu.kind != gpu_demand.kind) return {UnfitReason::kOtherKind};
  if (!demand.AllowsModel(gpu.model)) return {UnfitReason::kOtherModel};
  if (!demand.AllowsGpu(gpu.id)) return {UnfitReason::kOtherGpu};
  if (bytes > gpu.total_bytes) return {UnfitReason::kTooSmall, bytes, gpu.total_bytes};
  if (!gpu.healthy) return {UnfitReason::kUnhealthy};
  if (gpu.held_whole) return {UnfitReason::kHeldWhole};
  if (gpu_demand.whole())
    return gpu.idle() ? GpuShortfall() : GpuShortfall{UnfitReason::kShared, milli, gpu.free_milli};
  if (gpu.free_milli < milli) return {UnfitReason::kCompute, milli, gpu.free_milli};
  if (gpu.free_bytes < bytes) return {UnfitReason::kGpuMemory, bytes, gpu.free_bytes};
  return {};
}

NodeShortfall ShortfallOf(const NodeView& node, const Demand& demand) {
  NodeShortfall shortfall{.gpu_count = node->gpu_count};
  if (!node->present || !node->schedulable) {
    shortfall.reason = node->present ? UnfitReason::kCordoned : UnfitReason::kGone;
    shortfall.unresolvable = true;
    return shortfall;
  }
  // Checks GPUs before CPU, because GPUs matter most to a GPU pod.
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    if (!CountGpus(node, demand, n, &shortfall)) continue;
    SetCause(demand, &shortfall);
    return shortfall;
  }
  const auto host = [&](UnfitReason reason, int64_t wanted, int64_t free, int64_t total) {
    if (wanted <= free) return false;
    shortfall.reason = reason;
    shortfall.unresolvable = wanted > total;
    shortfall.wanted = wanted;
    shortfall.free = free;
    return true;
  };
  if (host(UnfitReason::kCpu, demand.cpu_milli, node->cpu_free, node->cpu_total)) return shortfall;
  if (host(UnfitReason::kMemory, demand.memory.count(), node->memory_free, node->memory_total)) {
    return shortfall;
  }
  if (demand.gpu_demands.size() > 1 && !Fits(node, demand)) {
    shortfall.reason = UnfitReason::kNotAllContainers;
    shortfall.wanted = demand.gpus();
  }
  return shortfall;
}

std::string TextOf(const NodeShortfall& shortfall, const Demand& demand, const Cluster& cluster) {
  switch (shortfall.reason) {
    case UnfitReason::kNothing:
      return "";
    case UnfitReason::kGone:
      return "the node was removed";
    case UnfitReason::kCordoned:
      return "the node is not schedulable";
    case UnfitReason::kCpu:
      return fmt::format("{} CPU wanted, {} free", ThousandthsText(shortfall.wanted),
                         ThousandthsText(shortfall.free));
    case UnfitReason::kMemory:
      return fmt::format("{} of memory wanted, {} free", MemoryText(shortfall.wanted),
                         MemoryText(shortfall.free));
    case UnfitReason::kNotAllContainers:
      return fmt::format("the {} GPU containers fit one by one, but not together",
                         demand.gpu_demands.size());
    default:
      break;
  }
  const GpuDemand& gpu_demand = demand.gpu_demands[shortfall.gpu_demand_index];
  std::string text = GpuDemandText(gpu_demand, demand, cluster) + " wanted, ";
  if (shortfall.gpu_count == 0) return text + "the node has none";
  text += fmt::format("{} of {} {}", shortfall.free, shortfall.gpu_count,
                      gpu_demand.whole() ? "free" : "have that");
  std::string_view separator = ": ";
  for (size_t i = 1; i < kUnfitReasonCount; ++i) {
    if (shortfall.gpus[i] == 0) continue;
    text += fmt::format("{}{} {}", separator, shortfall.gpus[i], kInfo[i].gpu_phrase);
    separator = ", ";
  }
  return text;
}

std::string TextOf(const GpuShortfall& shortfall) {
  switch (shortfall.reason) {
    case UnfitReason::kNothing:
      return "";
    case UnfitReason::kHeldWhole:
      return "held whole by a pod";
    case UnfitReason::kShared:
      return fmt::format("a whole GPU wanted, but pods have parts of it; {} GPU free",
                         ThousandthsText(shortfall.free));
    case UnfitReason::kCompute:
      return fmt::format("{} GPU wanted, {} free", ThousandthsText(shortfall.wanted),
                         ThousandthsText(shortfall.free));
    case UnfitReason::kGpuMemory:
      return fmt::format("{} wanted, {} free", MemoryText(shortfall.wanted),
                         MemoryText(shortfall.free));
    case UnfitReason::kTooSmall:
      if (shortfall.free == 0) {
        return fmt::format("{} wanted, the memory of the GPU is unknown",
                           MemoryText(shortfall.wanted));
      }
      return fmt::format("{} wanted, the GPU has {}", MemoryText(shortfall.wanted),
                         MemoryText(shortfall.free));
    default:
      return std::string(kInfo[static_cast<size_t>(shortfall.reason)].gpu_phrase);
  }
}

std::string ShortfallCounts::TextOfRoom() const {
  return fmt::format("{}/{} nodes have room", count(UnfitReason::kNothing),
                     std::accumulate(counts_.begin(), counts_.end(), size_t{0}));
}

std::string ShortfallCounts::Text() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < kUnfitReasonCount; ++i) {
    if (i > 0 && counts_[i] > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return counts_[a] > counts_[b]; });
  std::string text = TextOfRoom();
  std::string_view separator = ": ";
  for (const size_t i : order) {
    text += fmt::format("{}{} {}", separator, counts_[i], kInfo[i].node_phrase);
    separator = ", ";
  }
  return text;
}

ShortfallCounts CountShortfalls(const Cluster& cluster, const Demand& demand) {
  ShortfallCounts counts;
  for (NodeId node = 0; node < cluster.size(); ++node) {
    if (cluster.node(node)->present) counts.Add(ShortfallOf(cluster.node(node), demand));
  }
  return counts;
}

NodeReport ExplainNode(const Cluster& cluster, Policy& policy, ShapeId shape, NodeId node) {
  const Demand& demand = cluster.demand(shape);
  const NodeView view = cluster.node(node);
  NodeReport report{.shortfall = ShortfallOf(view, demand)};
  report.text = TextOf(report.shortfall, demand, cluster);
  for (const GpuDemand& gpu_demand : demand.gpu_demands) {
    std::vector<GpuShortfall>& gpus = report.gpu_demands.emplace_back();
    for (const GpuState& gpu : view.gpus) gpus.push_back(ShortfallOf(gpu, gpu_demand, demand));
  }
  if (!report.shortfall.ok()) return report;
  report.score = policy.Scores(shape)[node];
  report.pick = policy.PickOn(shape, node);
  report.terms = policy.Explain(shape, node);
  return report;
}

}  // namespace tessera::placement
