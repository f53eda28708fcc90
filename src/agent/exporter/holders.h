// SPDX-License-Identifier: Apache-2.0
// Which container holds which GPU, and how a GPU's use divides among containers that share it, so
// that the sum over containers equals the device's value. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/agent/grants/holdings.h"
#include "src/agent/limits/container_usage.h"

namespace tessera::agent {

struct ContainerName {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  auto operator<=>(const ContainerName&) const = default;
};

// The use of a GPU by one container with a share of it.
struct ShareUse {
  ContainerName holder;
  std::optional<double> percent;  // of the GPU's time
  std::optional<double> bytes;    // of its memory
};

struct GpuHolders {
  std::optional<ContainerName> sole_holder;  // the container that alone holds all of the GPU
  std::vector<ShareUse> shares;              // sorted by container; one for each container
};
using HoldersByUuid = std::map<std::string, GpuHolders, std::less<>>;

ContainerName NameOf(const ContainerRef& holder);
// The percentage of the GPU's time that a share used; nullopt if it is unknown.
std::optional<double> PercentOf(const ContainerGpuUse& use);

// A GPU that several containers hold whole, such as a pod's init container and its main container,
// has neither a sole holder nor shares. `uses` may be null.
HoldersByUuid HoldersOf(const Holdings& holdings, const ContainerUses* uses);

// Returns the parts, then the rest of `total`. No number is negative, and they add up to `total`.
// If the parts exceed `total` together, because they were read at another moment, they are scaled
// down.
std::vector<int64_t> PartsAndRest(int64_t total, std::vector<int64_t> parts);

}  // namespace tessera::agent
