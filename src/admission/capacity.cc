// SPDX-License-Identifier: Apache-2.0
#include "src/admission/capacity.h"

#include <algorithm>
#include <optional>
#include <set>

#include "src/device/model.h"

namespace tessera::admission {
namespace {

using device::ContainerRequest;
using device::Dialect;

void CountNode(const ledger::NodeEntry& entry, ClusterCapacity* capacity) {
  std::map<std::string_view, int> count_by_model;
  int gpu_count = 0;
  const device::NodeInventory inventory = entry.node.inventory.Full();
  for (const device::Gpu& gpu : inventory.gpus) {
    capacity->uuids.insert(gpu.uuid);
    if (!gpu.model.empty()) {
      capacity->quota_keys.emplace(entry.model_label.empty() ? gpu.model : entry.model_label,
                                   entry.node.pool);
    }
    if (gpu.mig) {
      for (const device::MigSlice& slice : *gpu.mig) capacity->mig_profiles.insert(slice.profile);
      continue;
    }
    ClusterCapacity::Model& model = capacity->models[gpu.model];
    model.largest_memory = std::max(model.largest_memory, gpu.memory);
    model.most_on_node = std::max(model.most_on_node, ++count_by_model[gpu.model]);
    ++gpu_count;
  }
  capacity->most_on_node = std::max(capacity->most_on_node, gpu_count);
}

// The part of the cluster that the pod's constraints allow.
struct AllowedGpus {
  Bytes largest_memory;
  int most_on_node = 0;
  bool all_models = false;  // no constraint on models
};

std::optional<AllowedGpus> AllowedGpusOf(const device::Constraints& constraints,
                                         const ClusterCapacity& capacity) {
  AllowedGpus allowed{.all_models = constraints.models.empty()};
  bool any = false;
  for (const auto& [product, model] : capacity.models) {
    const auto matches = [&product = product](const std::string& wanted) {
      return device::MatchesModel(product, wanted);
    };
    if (!allowed.all_models && std::ranges::none_of(constraints.models, matches)) continue;
    any = true;
    allowed.largest_memory = std::max(allowed.largest_memory, model.largest_memory);
    // An upper bound: the GPUs of different models may be on different nodes.
    allowed.most_on_node += model.most_on_node;
  }
  if (!any) return std::nullopt;
  allowed.most_on_node = std::min(allowed.most_on_node, capacity.most_on_node);
  return allowed;
}

std::string ModelsText(const ClusterCapacity& capacity) {
  std::string text;
  for (const auto& [product, model] : capacity.models) {
    const std::string name = device::ShortModel(product);
    if (!text.empty()) text += ", ";
    text += name.empty() ? "unknown" : name;
  }
  return text;
}

// The text of `memory`, in GiB if `wanted` is whole GiB, otherwise in MiB. The memory of a GPU is
// rounded down, as in the resources that its node offers.
std::string MemoryText(Bytes memory, Bytes wanted) {
  const bool gib = wanted.count() % GiB(1).count() == 0;
  return fmt::format("{} {}", ToMiB(memory) >> (gib ? 10 : 0), gib ? "GiB" : "MiB");
}

void ExplainMemory(const device::DeviceRequest& request, const AllowedGpus& allowed,
                   std::vector<std::string>* lines) {
  const std::string_view which =
      allowed.all_models ? "of the cluster" : "of the models that it allows";
  const Bytes one_gpu = request.OneGpuShare().memory;
  if (one_gpu > allowed.largest_memory) {
    lines->push_back(
        fmt::format("the pod requests {} of {} on one GPU, and the largest GPU {} has {}",
                    MemoryText(one_gpu, one_gpu), NameOf(Dialect::kGpuMem), which,
                    MemoryText(allowed.largest_memory, one_gpu)));
  }
  for (const ContainerRequest& container : request.containers) {
    const Bytes memory = container.per_gpu.memory;
    if (container.dialect != Dialect::kVcuda || memory <= allowed.largest_memory) continue;
    lines->push_back(
        fmt::format("container \"{}\": its {} must be on one GPU, and the largest GPU {} has {}",
                    container.name, MemoryText(memory, memory), which,
                    MemoryText(allowed.largest_memory, memory)));
  }
}

void ExplainWholeGpus(const device::DeviceRequest& request, const AllowedGpus& allowed,
                      std::vector<std::string>* lines) {
  int most = 0;
  for (const auto& stage : request.Stages()) {
    int count = 0;
    for (const size_t index : stage) {
      if (request.containers[index].exclusive) count += request.containers[index].count;
    }
    most = std::max(most, count);
  }
  if (most <= allowed.most_on_node) return;
  lines->push_back(fmt::format("the pod requests {} whole GPUs, and no node has more than {}{}",
                               most, allowed.most_on_node,
                               allowed.all_models ? "" : " of the models that it allows"));
}

void ExplainMigProfiles(const device::DeviceRequest& request, const ClusterCapacity& capacity,
                        std::vector<std::string>* lines) {
  for (const ContainerRequest& container : request.containers) {
    if (container.mig_profile.empty() || capacity.mig_profiles.contains(container.mig_profile)) {
      continue;
    }
    lines->push_back(fmt::format("container \"{}\": no GPU of the cluster has a MIG slice {}",
                                 container.name, container.mig_profile));
  }
}

void ExplainUuids(const device::Constraints& constraints, const ClusterCapacity& capacity,
                  std::vector<std::string>* lines) {
  const auto known = [&](const std::string& uuid) { return capacity.uuids.contains(uuid); };
  if (constraints.uuids.empty() || std::ranges::any_of(constraints.uuids, known)) return;
  lines->push_back(fmt::format("the cluster has no GPU {}", fmt::join(constraints.uuids, ", ")));
}

// The most compute that the pod holds at one time; MIG slices are omitted, because their GPU is
// unknown.
MilliGpu ComputeOf(const device::DeviceRequest& request) {
  MilliGpu most{0};
  for (const auto& stage : request.Stages()) {
    MilliGpu sum{0};
    for (const size_t index : stage) {
      const ContainerRequest& container = request.containers[index];
      if (container.mig_profile.empty()) sum += container.per_gpu.compute * container.count;
    }
    most = std::max(most, sum);
  }
  return most;
}

bool Allows(const device::Constraints& constraints, const std::string& model) {
  if (constraints.models.empty()) return true;
  return std::ranges::any_of(constraints.models, [&](const std::string& wanted) {
    // A node label may have the short name of a model that the pod names in full.
    return device::MatchesModel(model, wanted) || device::MatchesModel(wanted, model);
  });
}

void ExplainQuota(const ledger::PodRequest& pod, const ClusterCapacity& capacity,
                  std::vector<std::string>* lines) {
  const auto own = capacity.quota.config().find(pod.ns);
  if (own == capacity.quota.config().end()) return;
  placement::Quota quota_without_use;
  quota_without_use.SetConfig({*own});
  const MilliGpu amount = ComputeOf(*pod.devices);
  // One for each model that the pod may use: the pod waits only if all models' quotas reject it.
  std::set<std::string> rejections;
  for (const auto& [model, pool] : capacity.quota_keys) {
    if (!Allows(pod.devices->constraints, model)) continue;
    const placement::QuotaCharge charge{pod.ns, model, pool, amount};
    if (quota_without_use.Check(charge).ok()) return;
    rejections.insert(capacity.quota.Check(charge).message());
  }
  if (!rejections.empty()) lines->push_back(fmt::format("{}", fmt::join(rejections, "; ")));
}

}  // namespace

ClusterCapacity CapacityOf(const ledger::ClusterLedger& ledger) {
  ClusterCapacity capacity;
  for (const auto& [name, entry] : ledger.nodes()) CountNode(entry, &capacity);
  capacity.quota = ledger.quota();
  return capacity;
}

std::vector<std::string> WhyNeverFits(const ledger::PodRequest& pod,
                                      const ClusterCapacity& capacity) {
  std::vector<std::string> lines;
  const device::DeviceRequest& request = *pod.devices;
  if (!request.requests_devices() || (capacity.models.empty() && capacity.mig_profiles.empty())) {
    return lines;
  }
  ExplainMigProfiles(request, capacity, &lines);
  ExplainUuids(request.constraints, capacity, &lines);
  const auto allowed = AllowedGpusOf(request.constraints, capacity);
  if (allowed) {
    ExplainMemory(request, *allowed, &lines);
    ExplainWholeGpus(request, *allowed, &lines);
  } else if (lines.empty() && !capacity.models.empty()) {
    lines.push_back(
        fmt::format("no GPU of the cluster has one of the models {}; the cluster has {}",
                    fmt::join(request.constraints.models, ", "), ModelsText(capacity)));
  }
  ExplainQuota(pod, capacity, &lines);
  return lines;
}

}  // namespace tessera::admission
