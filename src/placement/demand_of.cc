// SPDX-License-Identifier: Apache-2.0
#include "src/placement/demand_of.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>

#include "src/device/model.h"

namespace tessera::placement {
namespace {

using device::ContainerRequest;

// Placeholder names for models and profiles that no node has. All unknown names share one number,
// so that pods cannot use up the numbers that nodes need.
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
  ASSIGN_OR_RETURN(const ModelId unknown, names.ModelOf(kUnknownModel));
  models.set(unknown);
  return models;
}

std::vector<GpuId> GpusOf(const std::vector<std::string>& uuids, const Cluster& names) {
  std::set<GpuId> gpus;
  for (const std::string& uuid : uuids) {
    for (const GpuId gpu : names.FindGpus(uuid)) gpus.insert(gpu);
  }
  return {gpus.begin(), gpus.end()};
}

// Merges the pod's lists of allowed and excluded GPUs into one filter: the allowed GPUs that are
// not excluded or, without an allow list, the excluded GPUs.
void SetGpuFilter(const device::Constraints& constraints, const Cluster& names, Demand* demand) {
  const std::vector<GpuId> excluded = GpusOf(constraints.excluded_uuids, names);
  if (constraints.uuids.empty()) {
    demand->gpu_filter = excluded;
    demand->gpu_filter_excludes = !excluded.empty();
    return;
  }
  std::ranges::set_difference(GpusOf(constraints.uuids, names), excluded,
                              std::back_inserter(demand->gpu_filter));
  if (demand->gpu_filter.empty()) demand->gpu_filter.push_back(kUnknownGpu);
}

Result<GpuDemand> GpuDemandOf(const ContainerRequest& container, Cluster& names) {
  GpuDemand gpu_demand{.count = container.count,
                       .milli = container.exclusive ? kWholeGpu : container.per_gpu.compute,
                       .bytes = container.per_gpu.memory};
  if (container.mig_profile.empty()) return gpu_demand;
  gpu_demand.milli = kWholeGpu;
  if (const auto known = names.FindKind(container.mig_profile)) {
    gpu_demand.kind = *known;
  } else {
    ASSIGN_OR_RETURN(gpu_demand.kind, names.KindOf(kUnknownProfile));
  }
  return gpu_demand;
}

// The smallest GPU demand that covers both.
GpuDemand LargerGpuDemand(const GpuDemand& a, const GpuDemand& b) {
  return {std::max(a.count, b.count), std::max(a.milli, b.milli), std::max(a.bytes, b.bytes),
          a.kind};
}

}  // namespace

Result<PodDemand> DemandOf(const device::DeviceRequest& request, int64_t cpu_milli, Bytes memory,
                           Cluster& names) {
  PodDemand pod;
  pod.demand.cpu_milli = cpu_milli;
  pod.demand.memory = memory;
  if (request.requests_devices()) {
    ASSIGN_OR_RETURN(pod.demand.models, ModelsOf(request.constraints, names));
    SetGpuFilter(request.constraints, names, &pod.demand);
  }
  pod.containers = request.Groups();
  for (const std::vector<size_t>& group : pod.containers) {
    const ContainerRequest& first = request.containers[group.front()];
    if (request.one_gpu && first.dialect == device::Dialect::kGpuMem) {
      const device::Share share = request.OneGpuShare();
      pod.demand.gpu_demands.push_back({.count = 1, .milli = share.compute, .bytes = share.memory});
      continue;
    }
    ASSIGN_OR_RETURN(GpuDemand gpu_demand, GpuDemandOf(first, names));
    for (size_t i = 1; i < group.size(); ++i) {
      ASSIGN_OR_RETURN(const GpuDemand other, GpuDemandOf(request.containers[group[i]], names));
      gpu_demand = LargerGpuDemand(gpu_demand, other);
    }
    pod.demand.gpu_demands.push_back(gpu_demand);
  }
  RETURN_IF_ERROR(Validate(pod.demand));
  return pod;
}

device::Assignment AssignmentOf(const device::DeviceRequest& request, const PodDemand& pod,
                                const Pick& pick, const Cluster& cluster, NodeId node) {
  const NodeView view = cluster.node(node);
  device::Assignment assignment;
  for (size_t n = 0; n < pod.containers.size(); ++n) {
    for (const size_t i : pod.containers[n]) {
      const ContainerRequest& container = request.containers[i];
      const bool whole = container.exclusive || !container.mig_profile.empty() ||
                         container.per_gpu.compute == kWholeGpu;
      auto& shares = assignment.containers[container.name];
      uint64_t left = pick.masks[n];
      for (int taken = 0; taken < container.count; ++taken, left &= left - 1) {
        const size_t position = static_cast<size_t>(std::countr_zero(left));
        shares.push_back(
            {cluster.uuid(node, position), whole ? kWholeGpu : container.per_gpu.compute,
             whole ? Bytes(view.gpus[position].total_bytes) : container.per_gpu.memory});
      }
    }
  }
  return assignment;
}

}  // namespace tessera::placement
