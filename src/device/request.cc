// SPDX-License-Identifier: Apache-2.0
#include "src/device/request.h"

#include <algorithm>

#include "api/names.h"
#include "src/device/model.h"

namespace tessera::device {
namespace {

bool Contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool AllowsModel(const Constraints& constraints, const Gpu& gpu) {
  if (constraints.models.empty()) return true;
  return std::any_of(constraints.models.begin(), constraints.models.end(),
                     [&](const std::string& wanted) { return MatchesModel(gpu.model, wanted); });
}

// The number of GPUs, and the share of each, that suffice for every container of a group.
struct GroupSize {
  int count = 0;
  MilliGpu compute;
  Bytes memory;
  std::string_view mig_profile;

  // Compute in thousandths of a GPU plus memory in units of 80 MiB.
  int64_t weight() const { return count * (compute.count() + memory.count() / MiB(80).count()); }
};

GroupSize SizeOf(const ContainerRequest& container) {
  return {container.count, container.per_gpu.compute, container.per_gpu.memory,
          container.mig_profile};
}

GroupSize LargerOf(const GroupSize& a, const GroupSize& b) {
  return {std::max(a.count, b.count), std::max(a.compute, b.compute), std::max(a.memory, b.memory),
          a.mig_profile};
}

struct ContainerGroup {
  std::vector<size_t> containers;
  GroupSize size;
  bool accepts_init = false;  // whether init containers may use the GPUs before this group
};

void AddInit(size_t container, const GroupSize& size, std::vector<ContainerGroup>* groups) {
  ContainerGroup* best = nullptr;
  int64_t growth = size.weight();
  for (ContainerGroup& group : *groups) {
    if (!group.accepts_init || group.size.mig_profile != size.mig_profile) continue;
    const int64_t added = LargerOf(group.size, size).weight() - group.size.weight();
    if (added > growth || (added == growth && best != nullptr)) continue;
    best = &group;
    growth = added;
  }
  if (best == nullptr)
    best =
        &groups->emplace_back(ContainerGroup{.containers = {}, .size = size, .accepts_init = true});
  best->size = LargerOf(best->size, size);
  best->containers.push_back(container);
}

}  // namespace

std::string_view NameOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kNone:
      return "none";
    case Dialect::kNvidiaGpu:
      return names::kResourceGpu;
    case Dialect::kNvidiaMig:
      return "nvidia.com/mig-*";
    case Dialect::kGpuMem:
      return names::kResourceGpuMem;
    case Dialect::kVcuda:
      return names::kResourceVcudaCore;
  }
  return "unknown";
}

std::optional<Dialect> DialectFromName(std::string_view name) {
  if (name == NameOf(Dialect::kNone)) return Dialect::kNone;
  const auto* const found =
      std::ranges::find(kDialects, name, [](Dialect dialect) { return NameOf(dialect); });
  if (found == kDialects.end()) return std::nullopt;
  return *found;
}

std::optional<Dialect> DialectOfResource(std::string_view resource) {
  if (resource == names::kResourceGpu) return Dialect::kNvidiaGpu;
  if (resource.starts_with(names::kResourceMigPrefix)) return Dialect::kNvidiaMig;
  if (resource == names::kResourceGpuMem) return Dialect::kGpuMem;
  if (resource == names::kResourceVcudaCore || resource == names::kResourceVcudaMemory) {
    return Dialect::kVcuda;
  }
  return std::nullopt;
}

std::string_view NameOf(Phase phase) {
  switch (phase) {
    case Phase::kInit:
      return "init";
    case Phase::kSidecar:
      return "sidecar";
    case Phase::kMain:
      return "main";
  }
  return "unknown";
}

std::optional<Phase> PhaseFromName(std::string_view name) {
  for (const Phase phase : {Phase::kInit, Phase::kSidecar, Phase::kMain}) {
    if (NameOf(phase) == name) return phase;
  }
  return std::nullopt;
}

std::string_view NameOf(PackingPolicy policy) {
  return policy == PackingPolicy::kBinpack ? "binpack" : "spread";
}

std::optional<PackingPolicy> PackingPolicyFromName(std::string_view name) {
  for (const PackingPolicy policy : {PackingPolicy::kBinpack, PackingPolicy::kSpread}) {
    if (NameOf(policy) == name) return policy;
  }
  return std::nullopt;
}

bool Constraints::Allow(const Gpu& gpu) const {
  return AllowsModel(*this, gpu) && (uuids.empty() || Contains(uuids, gpu.uuid)) &&
         !Contains(excluded_uuids, gpu.uuid);
}

bool Constraints::Allow(const Gpu& gpu, const MigSlice& slice) const {
  const bool wanted = uuids.empty() || Contains(uuids, gpu.uuid) || Contains(uuids, slice.uuid);
  return wanted && AllowsModel(*this, gpu) && !Contains(excluded_uuids, gpu.uuid) &&
         !Contains(excluded_uuids, slice.uuid);
}

bool DeviceRequest::requests_devices() const {
  return std::any_of(containers.begin(), containers.end(),
                     [](const ContainerRequest& container) { return container.count > 0; });
}

std::vector<std::vector<size_t>> DeviceRequest::Stages() const {
  std::vector<std::vector<size_t>> stages;
  std::vector<size_t> running;  // sidecars first, then also the main containers
  for (size_t i = 0; i < containers.size(); ++i) {
    if (containers[i].count == 0) continue;
    if (containers[i].phase != Phase::kInit) {
      running.push_back(i);
      continue;
    }
    stages.push_back(running);
    stages.back().push_back(i);
  }
  if (!running.empty()) stages.push_back(std::move(running));
  return stages;
}

std::vector<std::vector<size_t>> DeviceRequest::Groups() const {
  const auto on_one_gpu = [&](const ContainerRequest& container) {
    return one_gpu && container.dialect == Dialect::kGpuMem;
  };
  std::vector<ContainerGroup> groups;
  ContainerGroup one_gpu_group;
  for (size_t i = 0; i < containers.size(); ++i) {
    const ContainerRequest& container = containers[i];
    if (container.count == 0) continue;
    if (on_one_gpu(container)) {
      one_gpu_group.containers.push_back(i);
    } else if (container.phase != Phase::kInit) {
      groups.push_back({.containers = {i},
                        .size = SizeOf(container),
                        .accepts_init = container.phase == Phase::kMain});
    }
  }
  if (!one_gpu_group.containers.empty()) groups.push_back(std::move(one_gpu_group));
  for (size_t i = 0; i < containers.size(); ++i) {
    const ContainerRequest& container = containers[i];
    if (container.count == 0 || container.phase != Phase::kInit || on_one_gpu(container)) continue;
    AddInit(i, SizeOf(container), &groups);
  }
  std::vector<std::vector<size_t>> positions;
  positions.reserve(groups.size());
  for (ContainerGroup& group : groups) positions.push_back(std::move(group.containers));
  return positions;
}

Share DeviceRequest::OneGpuShare() const {
  Share largest;
  if (!one_gpu) return largest;
  for (const std::vector<size_t>& stage : Stages()) {
    Share sum;
    for (const size_t i : stage) {
      if (containers[i].dialect != Dialect::kGpuMem) continue;
      sum.memory += containers[i].per_gpu.memory;
    }
    largest.memory = std::max(largest.memory, sum.memory);
  }
  return largest;
}

}  // namespace tessera::device
