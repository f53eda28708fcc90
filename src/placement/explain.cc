// SPDX-License-Identifier: Apache-2.0
#include "src/placement/explain.h"

#include <algorithm>

#include "src/placement/fit.h"

namespace tessera::placement {
namespace {

struct LackInfo {
  std::string_view id;
  std::string_view phrase;   // of nodes
  std::string_view of_gpus;  // "2 held whole"
};
constexpr std::array<LackInfo, kLacks> kInfo{{
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
static_assert(static_cast<size_t>(Lack::kGpuMemory) + 1 == kLacks);

uint8_t& At(NodeLack& lack, Lack cause) { return lack.gpus[static_cast<size_t>(cause)]; }

// Counts the node's GPUs by what they lack for one ask; false where enough GPUs have room.
bool CountGpus(const NodeView& node, const Demand& demand, size_t n, NodeLack* lack) {
  const GpuAsk& ask = demand.asks[n];
  lack->gpus = {};
  for (const GpuState& gpu : node.gpus) ++At(*lack, WhyNot(gpu, ask, demand).lack);
  lack->ask = static_cast<uint8_t>(n);
  lack->wanted = ask.count;
  lack->free = At(*lack, Lack::kNothing);
  return lack->free < ask.count;
}

// Names the one cause of too few GPUs: the first without which enough GPUs would be left.
void NameCause(const Demand& demand, NodeLack* lack) {
  const GpuAsk& ask = demand.asks[lack->ask];
  int64_t left = lack->gpu_count - At(*lack, Lack::kOtherKind);
  lack->unresolvable = true;
  const auto take = [&](Lack cause) {
    left -= At(*lack, cause);
    if (left >= ask.count) return false;
    lack->lack = cause;
    return true;
  };
  if (left < ask.count) {
    lack->lack = left == 0 ? Lack::kNoGpu : Lack::kTooFew;
    return;
  }
  for (const Lack cause : {Lack::kOtherModel, Lack::kOtherGpu, Lack::kTooSmall, Lack::kUnhealthy}) {
    if (take(cause)) return;
  }
  lack->unresolvable = false;
  lack->lack = Lack::kBusy;
  if (ask.whole()) return;
  for (const Lack cause : {Lack::kHeldWhole, Lack::kCompute, Lack::kGpuMemory}) {
    if (At(*lack, cause) > At(*lack, lack->lack)) lack->lack = cause;
  }
}

std::string MemoryText(int64_t bytes) {
  if (bytes % (int64_t{1} << 30) == 0) return fmt::format("{} GiB", bytes >> 30);
  if (bytes % (int64_t{1} << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} bytes", bytes);
}

std::string CardsText(int64_t milli) { return fmt::format("{:.6g}", milli / 1000.0); }

// "3 GPUs", "1 GPU with 0.3 of its compute and 8 GiB", "2 1g.10gb".
std::string AskText(const GpuAsk& ask, const Demand& demand, const Cluster& names) {
  std::string text = ask.kind != kWholeDevice
                         ? fmt::format("{} {}", ask.count, names.NameOfKind(ask.kind))
                         : fmt::format("{} GPU{}", ask.count, ask.count == 1 ? "" : "s");
  if (demand.models.any()) {
    std::string_view separator = " of model ";
    for (size_t model = 0; model < names.model_count(); ++model) {
      if (!demand.models.test(model)) continue;
      text += separator;
      text += names.NameOf(static_cast<ModelId>(model));
      separator = " or ";
    }
  }
  if (!demand.gpu_filter.empty()) {
    text += fmt::format("{} {} named by UUID", demand.gpu_filter_excludes ? ", none of" : " among",
                        demand.gpu_filter.size());
  }
  std::string_view separator = " with ";
  if (!ask.whole() && ask.milli > MilliGpu(0)) {
    text += fmt::format(" with {} of the compute", CardsText(ask.milli.count()));
    separator = " and ";
  }
  if (ask.bytes > Bytes(0)) text += fmt::format("{}{}", separator, MemoryText(ask.bytes.count()));
  return text;
}

}  // namespace

std::string_view IdOf(Lack lack) { return kInfo[static_cast<size_t>(lack)].id; }
std::string_view PhraseOf(Lack lack) { return kInfo[static_cast<size_t>(lack)].phrase; }

GpuLack WhyNot(const GpuState& gpu, const GpuAsk& ask, const Demand& demand) {
  const int64_t milli = ask.milli.count(), bytes = ask.bytes.count();
  if (gpu.kind != ask.kind) return {Lack::kOtherKind};
  if (!demand.AllowsModel(gpu.model)) return {Lack::kOtherModel};
  if (!demand.AllowsGpu(gpu.id)) return {Lack::kOtherGpu};
  if (bytes > gpu.total_bytes) return {Lack::kTooSmall, bytes, gpu.total_bytes};
  if (!gpu.healthy) return {Lack::kUnhealthy};
  if (gpu.held_whole) return {Lack::kHeldWhole};
  if (ask.whole()) return gpu.idle() ? GpuLack() : GpuLack{Lack::kShared, milli, gpu.free_milli};
  if (gpu.free_milli < milli) return {Lack::kCompute, milli, gpu.free_milli};
  if (gpu.free_bytes < bytes) return {Lack::kGpuMemory, bytes, gpu.free_bytes};
  return {};
}

NodeLack WhyNot(const NodeView& node, const Demand& demand) {
  NodeLack lack{.gpu_count = node->gpu_count};
  if (!node->present || !node->schedulable) {
    lack.lack = node->present ? Lack::kCordoned : Lack::kGone;
    lack.unresolvable = true;
    return lack;
  }
  // GPUs are checked before CPU, because a GPU pod needs them most.
  for (size_t n = 0; n < demand.asks.size(); ++n) {
    if (!CountGpus(node, demand, n, &lack)) continue;
    NameCause(demand, &lack);
    return lack;
  }
  const auto host = [&](Lack cause, int64_t wanted, int64_t free, int64_t total) {
    if (wanted <= free) return false;
    lack.lack = cause;
    lack.unresolvable = wanted > total;
    lack.wanted = wanted;
    lack.free = free;
    return true;
  };
  if (host(Lack::kCpu, demand.cpu_milli, node->cpu_free, node->cpu_total)) return lack;
  if (host(Lack::kMemory, demand.memory.count(), node->memory_free, node->memory_total)) {
    return lack;
  }
  if (demand.asks.size() > 1 && !Fits(node, demand)) {
    lack.lack = Lack::kTogether;
    lack.wanted = demand.gpus();
  }
  return lack;
}

std::string TextOf(const NodeLack& lack, const Demand& demand, const Cluster& names) {
  switch (lack.lack) {
    case Lack::kNothing:
      return "";
    case Lack::kGone:
      return "the node is gone";
    case Lack::kCordoned:
      return "the node takes no pods";
    case Lack::kCpu:
      return fmt::format("{} CPU wanted, {} free", CardsText(lack.wanted), CardsText(lack.free));
    case Lack::kMemory:
      return fmt::format("{} of memory wanted, {} free", MemoryText(lack.wanted),
                         MemoryText(lack.free));
    case Lack::kTogether:
      return fmt::format("the {} GPU containers fit one by one, but not together",
                         demand.asks.size());
    default:
      break;
  }
  const GpuAsk& ask = demand.asks[lack.ask];
  std::string text = AskText(ask, demand, names) + " wanted, ";
  if (lack.gpu_count == 0) return text + "the node has none";
  text += fmt::format("{} of {} {}", lack.free, lack.gpu_count, ask.whole() ? "free" : "have that");
  std::string_view separator = ": ";
  for (size_t i = 1; i < kLacks; ++i) {
    if (lack.gpus[i] == 0) continue;
    text += fmt::format("{}{} {}", separator, lack.gpus[i], kInfo[i].of_gpus);
    separator = ", ";
  }
  return text;
}

std::string TextOf(const GpuLack& lack) {
  switch (lack.lack) {
    case Lack::kNothing:
      return "";
    case Lack::kHeldWhole:
      return "held whole by a pod";
    case Lack::kShared:
      return fmt::format("a whole GPU wanted, but pods have parts of it; {} GPU free",
                         CardsText(lack.free));
    case Lack::kCompute:
      return fmt::format("{} GPU wanted, {} free", CardsText(lack.wanted), CardsText(lack.free));
    case Lack::kGpuMemory:
      return fmt::format("{} wanted, {} free", MemoryText(lack.wanted), MemoryText(lack.free));
    case Lack::kTooSmall:
      if (lack.free == 0) {
        return fmt::format("{} wanted, how much it has is not known", MemoryText(lack.wanted));
      }
      return fmt::format("{} wanted, it has {}", MemoryText(lack.wanted), MemoryText(lack.free));
    default:
      return std::string(kInfo[static_cast<size_t>(lack.lack)].of_gpus);
  }
}

std::string LackCounts::Text() const {
  std::vector<size_t> order;
  size_t nodes = 0;
  for (size_t i = 0; i < kLacks; ++i) {
    nodes += counts_[i];
    if (i > 0 && counts_[i] > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return counts_[a] > counts_[b]; });
  std::string text = fmt::format("{}/{} nodes have room", count(Lack::kNothing), nodes);
  std::string_view separator = ": ";
  for (const size_t i : order) {
    text += fmt::format("{}{} {}", separator, counts_[i], kInfo[i].phrase);
    separator = ", ";
  }
  return text;
}

LackCounts CountLacks(const Cluster& cluster, const Demand& demand) {
  LackCounts counts;
  for (NodeId node = 0; node < cluster.size(); ++node) {
    if (cluster.node(node)->present) counts.Add(WhyNot(cluster.node(node), demand));
  }
  return counts;
}

NodeReport ExplainNode(const Cluster& cluster, Policy& policy, ShapeId shape, NodeId node) {
  const Demand& demand = cluster.demand(shape);
  const NodeView view = cluster.node(node);
  NodeReport report{.lack = WhyNot(view, demand)};
  report.text = TextOf(report.lack, demand, cluster);
  for (const GpuAsk& ask : demand.asks) {
    std::vector<GpuLack>& gpus = report.asks.emplace_back();
    for (const GpuState& gpu : view.gpus) gpus.push_back(WhyNot(gpu, ask, demand));
  }
  if (!report.lack.ok()) return report;
  report.score = policy.Scores(shape)[node];
  report.pick = policy.PickOn(shape, node);
  report.terms = policy.Explain(shape, node);
  return report;
}

}  // namespace tessera::placement
