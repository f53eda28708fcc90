// SPDX-License-Identifier: Apache-2.0
#include "src/placement/demand_of.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <set>

#include "src/device/model.h"

namespace tessera::placement {
namespace {

using device::ContainerRequest;
using device::Phase;

// Names that no node has, for pods that want what nobody here knows. One for all of them: pods must
// not be able to use up the numbers that nodes need.
constexpr std::string_view kUnknownModel = "(a model that no node has)";
constexpr std::string_view kUnknownProfile = "(a profile that no node has)";

Result<ModelSet> ModelsOf(const device::Constraints& constraints, Cluster& names) {
  ModelSet models;
  if (constraints.models.empty()) return models;
  for (size_t model = 0; model < names.model_count(); ++model) {
    const std::string_view product = names.NameOf(static_cast<ModelId>(model));
    for (const std::string& wanted : constraints.models) {
      if (device::MatchesModel(product, wanted)) models.set(model);
    }
  }
  if (models.any()) return models;
  ASSIGN_OR_RETURN(const ModelId none, names.ModelOf(kUnknownModel));
  models.set(none);
  return models;
}

std::vector<GpuId> GpusOf(const std::vector<std::string>& uuids, const Cluster& names) {
  std::set<GpuId> gpus;
  for (const std::string& uuid : uuids) {
    for (const GpuId gpu : names.FindGpus(uuid)) gpus.insert(gpu);
  }
  return {gpus.begin(), gpus.end()};
}

// One list says what the two of a pod say: of those that it allows, the ones that it does not
// exclude; or else those that it excludes.
void NameGpus(const device::Constraints& constraints, const Cluster& names, Demand* demand) {
  const std::vector<GpuId> excluded = GpusOf(constraints.excluded_uuids, names);
  if (constraints.uuids.empty()) {
    demand->named = excluded;
    demand->avoid_named = !excluded.empty();
    return;
  }
  std::ranges::set_difference(GpusOf(constraints.uuids, names), excluded,
                              std::back_inserter(demand->named));
  if (demand->named.empty()) demand->named.push_back(kUnknownGpu);
}

Result<GpuAsk> AskOf(const ContainerRequest& container, Cluster& names) {
  GpuAsk ask{.count = container.count,
             .milli = container.exclusive ? kWholeGpu : container.per_gpu.compute,
             .bytes = container.per_gpu.memory};
  if (container.mig_profile.empty()) return ask;
  ask.milli = kWholeGpu;
  if (const auto known = names.FindKind(container.mig_profile)) {
    ask.kind = *known;
  } else {
    ASSIGN_OR_RETURN(ask.kind, names.KindOf(kUnknownProfile));
  }
  return ask;
}

// The smallest ask on whose GPUs either of the two can live.
GpuAsk Both(const GpuAsk& a, const GpuAsk& b) {
  return {std::max(a.count, b.count), std::max(a.milli, b.milli), std::max(a.bytes, b.bytes),
          a.kind};
}

// Thousandths of GPUs that an ask takes up, by compute and memory; a GPU is one of 80 GiB here.
int64_t Weight(const GpuAsk& ask) {
  return ask.count * (ask.milli.count() + ask.bytes.count() / MiB(80).count());
}

// Puts an init container onto the ask that grows the least by it, or into one of its own where that
// is less. `shareable` says which asks hold no sidecar, which would still be there.
void AddInit(const GpuAsk& ask, size_t container, std::vector<bool>* shareable, PodDemand* pod) {
  std::optional<size_t> best;
  int64_t growth = Weight(ask);
  for (size_t n = 0; n < pod->demand.asks.size(); ++n) {
    const GpuAsk& other = pod->demand.asks[n];
    if (!(*shareable)[n] || other.kind != ask.kind) continue;
    const int64_t more = Weight(Both(other, ask)) - Weight(other);
    if (more > growth || (more == growth && best)) continue;
    best = n;
    growth = more;
  }
  if (!best) {
    best = pod->demand.asks.size();
    pod->demand.asks.push_back(ask);
    pod->containers.emplace_back();
    shareable->push_back(true);
  }
  pod->demand.asks[*best] = Both(pod->demand.asks[*best], ask);
  pod->containers[*best].push_back(container);
}

}  // namespace

Result<PodDemand> DemandOf(const device::Request& request, int64_t cpu_milli, Bytes memory,
                           Cluster& names) {
  PodDemand pod;
  pod.demand.cpu_milli = cpu_milli;
  pod.demand.memory = memory;
  if (request.asks_for_devices()) {
    ASSIGN_OR_RETURN(pod.demand.models, ModelsOf(request.constraints, names));
    NameGpus(request.constraints, names, &pod.demand);
  }
  std::vector<bool> shareable;
  const auto add = [&](const GpuAsk& ask, std::vector<size_t> containers, bool with_init) {
    pod.demand.asks.push_back(ask);
    pod.containers.push_back(std::move(containers));
    shareable.push_back(with_init);
  };
  const auto on_one_gpu = [&](const ContainerRequest& container) {
    return request.one_gpu && container.dialect == device::Dialect::kGpuMem && container.count > 0;
  };
  std::vector<size_t> together;
  for (size_t i = 0; i < request.containers.size(); ++i) {
    const ContainerRequest& container = request.containers[i];
    if (on_one_gpu(container)) together.push_back(i);
    if (container.count == 0 || on_one_gpu(container) || container.phase == Phase::kInit) continue;
    ASSIGN_OR_RETURN(const GpuAsk ask, AskOf(container, names));
    add(ask, {i}, container.phase == Phase::kMain);
  }
  if (!together.empty()) {
    const device::Share share = request.OneGpuShare();
    add({.count = 1, .milli = share.compute, .bytes = share.memory}, together, false);
  }
  for (size_t i = 0; i < request.containers.size(); ++i) {
    const ContainerRequest& container = request.containers[i];
    if (container.count == 0 || on_one_gpu(container) || container.phase != Phase::kInit) continue;
    ASSIGN_OR_RETURN(const GpuAsk ask, AskOf(container, names));
    AddInit(ask, i, &shareable, &pod);
  }
  RETURN_IF_ERROR(Validate(pod.demand));
  return pod;
}

device::Assignment AssignmentOf(const device::Request& request, const PodDemand& pod,
                                const Pick& pick, const NodeSpec& spec) {
  device::Assignment assignment;
  for (size_t n = 0; n < pod.containers.size(); ++n) {
    for (const size_t i : pod.containers[n]) {
      const ContainerRequest& container = request.containers[i];
      const bool whole = container.exclusive || !container.mig_profile.empty() ||
                         container.per_gpu.compute == kWholeGpu;
      auto& shares = assignment.containers[container.name];
      uint64_t left = pick.masks[n];
      for (int taken = 0; taken < container.count; ++taken, left &= left - 1) {
        const GpuSpec& gpu = spec.gpus[std::countr_zero(left)];
        shares.push_back(whole ? device::DeviceShare{gpu.uuid, kWholeGpu, gpu.memory}
                               : device::DeviceShare{gpu.uuid, container.per_gpu.compute,
                                                     container.per_gpu.memory});
      }
    }
  }
  return assignment;
}

}  // namespace tessera::placement
