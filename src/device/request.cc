// SPDX-License-Identifier: Apache-2.0
#include "src/device/request.h"

#include <algorithm>

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

}  // namespace

std::string_view NameOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kNone:
      return "none";
    case Dialect::kNvidiaGpu:
      return "nvidia.com/gpu";
    case Dialect::kNvidiaMig:
      return "nvidia.com/mig-*";
    case Dialect::kGpuMem:
      return "aliyun.com/gpu-mem";
    case Dialect::kVcuda:
      return "tencent.com/vcuda-core";
  }
  return "unknown";
}

std::string_view NameOf(Policy policy) { return policy == Policy::kBinpack ? "binpack" : "spread"; }

std::optional<Policy> PolicyFromName(std::string_view name) {
  for (const Policy policy : {Policy::kBinpack, Policy::kSpread}) {
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

bool Request::asks_for_devices() const {
  return std::any_of(containers.begin(), containers.end(),
                     [](const ContainerRequest& container) { return container.count > 0; });
}

std::vector<std::vector<size_t>> Request::Stages() const {
  std::vector<std::vector<size_t>> stages;
  std::vector<size_t> running;  // sidecars first, then the main containers join them
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

Share Request::OneGpuShare() const {
  Share most;
  if (!one_gpu) return most;
  for (const std::vector<size_t>& stage : Stages()) {
    Share sum;
    for (const size_t i : stage) {
      if (containers[i].dialect != Dialect::kGpuMem) continue;
      sum.compute += containers[i].per_gpu.compute;
      sum.memory += containers[i].per_gpu.memory;
    }
    most.compute = std::max(most.compute, sum.compute);
    most.memory = std::max(most.memory, sum.memory);
  }
  return most;
}

}  // namespace tessera::device
