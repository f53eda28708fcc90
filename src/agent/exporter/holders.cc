// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/holders.h"

#include <algorithm>
#include <numeric>

namespace tessera::agent {
namespace {

std::optional<double> BytesOf(const ContainerGpuUse& use) {
  if (use.reported) return static_cast<double>(use.reported->count());
  if (use.limited) return static_cast<double>(use.used().count());
  return std::nullopt;
}

}  // namespace

ContainerName NameOf(const ContainerRef& holder) {
  return {
      .pod_namespace = holder.pod_namespace, .pod = holder.pod_name, .container = holder.container};
}

std::optional<double> PercentOf(const ContainerGpuUse& use) {
  if (use.utilization) return 100 * *use.utilization;
  if (use.compute_use) return 100 * use.compute_use->used;
  return std::nullopt;
}

HoldersByUuid HoldersOf(const Holdings& holdings, const ContainerUses* uses) {
  HoldersByUuid holders;
  std::map<std::string, int, std::less<>> counts;
  for (const HeldContainer& container : holdings.containers) {
    for (const device::DeviceShare& share : container.shares) {
      ++counts[share.uuid];
      const bool is_whole_with_known_owner =
          share.compute == kWholeGpu && container.holder.owner_known();
      if (is_whole_with_known_owner) holders[share.uuid].sole_holder = NameOf(container.holder);
    }
  }
  for (auto& [uuid, gpu_holders] : holders) {
    if (counts[uuid] > 1) gpu_holders.sole_holder.reset();
  }
  if (uses == nullptr) return holders;
  for (const ContainerGpuUse& use : *uses) {
    GpuHolders& gpu_holders = holders[use.uuid];
    if (gpu_holders.sole_holder) continue;
    gpu_holders.shares.push_back(
        {.holder = NameOf(use.holder), .percent = PercentOf(use), .bytes = BytesOf(use)});
  }
  for (auto& [uuid, gpu_holders] : holders) {
    std::ranges::stable_sort(gpu_holders.shares, {}, &ShareUse::holder);
    const auto repeated = std::ranges::unique(gpu_holders.shares, {}, &ShareUse::holder);
    gpu_holders.shares.erase(repeated.begin(), repeated.end());
  }
  return holders;
}

std::vector<int64_t> PartsAndRest(int64_t total, std::vector<int64_t> parts) {
  total = std::max<int64_t>(total, 0);
  for (int64_t& part : parts) part = std::max<int64_t>(part, 0);
  const int64_t sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  if (sum > total) {
    for (int64_t& part : parts) {
      part = static_cast<int64_t>(static_cast<__int128>(part) * total / sum);
    }
  }
  const int64_t parts_sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  parts.push_back(total - parts_sum);
  return parts;
}

}  // namespace tessera::agent
