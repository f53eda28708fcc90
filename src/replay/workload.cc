// SPDX-License-Identifier: Apache-2.0
#include "src/replay/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "src/replay/csv.h"

namespace tessera::replay {
namespace {

using placement::Cluster;
using placement::Demand;
using placement::ShapeId;

// Omits models that no node has. If no node has any of them, the demand names a placeholder model,
// so that it fits on no node.
Result<placement::ModelSet> ModelsOf(const TracePod& pod, Cluster& cluster) {
  placement::ModelSet models;
  for (const std::string& name : pod.models) {
    const placement::ModelId known = cluster.FindModel(name);
    if (known != placement::kNoModel) models.set(known);
  }
  if (models.any() || pod.models.empty()) return models;
  ASSIGN_OR_RETURN(const placement::ModelId unknown, cluster.ModelOf(pod.models.front()));
  models.set(unknown);
  return models;
}

// Traces lack the device memory of GPUs. Every GPU gets a nominal 1000 x 16 MiB, so that a
// thousandth of a GPU is 16 MiB.
constexpr Bytes kMemoryPerMilli = MiB(16);

Result<std::optional<Demand>> DemandOf(const TracePod& pod, ShareResource share_resource,
                                       Cluster& cluster) {
  if (pod.gpus > static_cast<int>(placement::kMaxGpusPerNode)) return std::optional<Demand>();
  Demand demand;
  demand.cpu_milli = pod.cpu_milli;
  demand.memory = pod.memory;
  if (pod.gpus > 0) {
    placement::GpuDemand gpu_demand{.count = pod.gpus, .milli = pod.per_gpu};
    if (share_resource == ShareResource::kMemory && !gpu_demand.whole()) {
      gpu_demand.bytes = kMemoryPerMilli * pod.per_gpu.count();
      gpu_demand.milli = MilliGpu(0);
    }
    demand.gpu_demands.push_back(gpu_demand);
    ASSIGN_OR_RETURN(demand.models, ModelsOf(pod, cluster));
  }
  return std::optional<Demand>(std::move(demand));
}

placement::NodeSpec SpecOf(const TraceNode& node) {
  placement::NodeSpec spec;
  spec.name = node.name;
  spec.cpu_milli = node.cpu_milli;
  spec.memory = node.memory;
  spec.gpus.resize(static_cast<size_t>(node.gpus),
                   {.model = node.model, .memory = kMemoryPerMilli * kWholeGpu.count()});
  return spec;
}

}  // namespace

std::vector<uint32_t> Arrivals(const std::vector<TracePod>& pods, int64_t capacity, int load,
                               Random& random) {
  std::vector<uint32_t> order(pods.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return pods[a].name < pods[b].name; });
  const std::vector<uint32_t> original = order;
  random.Shuffle(order);
  int64_t requested = 0;
  for (const TracePod& pod : pods) requested += pod.milli();
  if (requested == 0) return order;  // pods without GPUs never make up a load
  const int64_t wanted = capacity / 100 * load;
  // The order is random, so removing the last pods removes random pods.
  while (requested > wanted && !order.empty()) {
    requested -= pods[order.back()].milli();
    order.pop_back();
  }
  if (order.size() < original.size()) return order;
  for (;;) {
    const uint32_t next = original[random.Below(original.size())];
    if (requested + pods[next].milli() > wanted) return order;
    requested += pods[next].milli();
    order.push_back(next);
  }
}

std::vector<TypicalPod> TypicalPods(const std::vector<TracePod>& pods, double share) {
  using Key = std::tuple<int64_t, int, int64_t, std::vector<std::string>>;
  std::map<Key, size_t> counts;
  for (const TracePod& pod : pods) {
    ++counts[Key(pod.cpu_milli, pod.gpus, pod.per_gpu.count(), pod.models)];
  }
  std::vector<TypicalPod> typical;
  for (const auto& [key, count] : counts) {
    TracePod pod;
    std::tie(pod.cpu_milli, pod.gpus, std::ignore, pod.models) = key;
    pod.per_gpu = MilliGpu(std::get<2>(key));
    typical.push_back({std::move(pod), count});
  }
  std::stable_sort(typical.begin(), typical.end(),
                   [](auto& a, auto& b) { return a.count > b.count; });
  size_t covered = 0, taken = 0;
  while (taken < std::min(typical.size(), kMaxTypicalPods) &&
         static_cast<double>(covered) < share * static_cast<double>(pods.size())) {
    covered += typical[taken++].count;
  }
  typical.resize(taken);
  return typical;
}

std::string UnknownModels::Text() const {
  constexpr size_t kShown = 10;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, models.size()); ++i) shown.push_back(Quote(models[i]));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (models.size() > kShown) text += fmt::format(" and {} more", models.size() - kShown);
  return text;
}

UnknownModels FindUnknownModels(const std::vector<TraceNode>& nodes,
                                const std::vector<TracePod>& pods) {
  std::set<std::string_view> known;
  for (const TraceNode& node : nodes) {
    if (node.gpus > 0) known.insert(node.model);
  }
  std::set<std::string> named;
  UnknownModels unknown;
  for (const TracePod& pod : pods) {
    const bool wants = pod.gpus > 0 && !pod.models.empty();
    if (!wants || std::any_of(pod.models.begin(), pod.models.end(),
                              [&](auto& model) { return known.contains(model); })) {
      continue;
    }
    ++unknown.pods;
    named.insert(pod.models.begin(), pod.models.end());
  }
  unknown.models.assign(named.begin(), named.end());
  return unknown;
}

Result<LoadedTrace> LoadTrace(const std::vector<TraceNode>& nodes,
                              const std::vector<TracePod>& pods, ShareResource share_resource,
                              Random& random) {
  LoadedTrace loaded;
  loaded.cluster = std::make_unique<Cluster>();
  std::vector<uint32_t> order(nodes.size());
  std::iota(order.begin(), order.end(), 0u);
  random.Shuffle(order);
  for (const uint32_t i : order) {
    ASSIGN_OR_RETURN([[maybe_unused]] const auto id, loaded.cluster->AddNode(SpecOf(nodes[i])));
  }
  loaded.demands.reserve(pods.size());
  for (const TracePod& pod : pods) {
    ASSIGN_OR_RETURN(auto demand,
                     DemandOf(pod, share_resource, *loaded.cluster).Annotate(pod.name));
    loaded.demands.push_back(std::move(demand));
  }
  for (const TypicalPod& typical : TypicalPods(pods)) {
    ASSIGN_OR_RETURN(const auto demand, DemandOf(typical.pod, share_resource, *loaded.cluster));
    if (!demand) continue;
    ASSIGN_OR_RETURN(const ShapeId shape, loaded.cluster->Intern(*demand));
    loaded.mix.push_back({shape, static_cast<double>(typical.count)});
  }
  return loaded;
}

}  // namespace tessera::replay
