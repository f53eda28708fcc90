// SPDX-License-Identifier: Apache-2.0
// Pod annotations tessera.dev/memory-limit and tessera.dev/compute-limit, which limit the device
// memory and GPU time that running containers may use on each of their GPUs. Each is a list of
//
//   8Gi            for each container, on each of its GPUs
//   main=8Gi       for this container
//   GPU-f1e2…=4Gi  for each container on this GPU
//
// Compute is in hundredths of a GPU, for example 20.
//
// If several entries match a container and a GPU, the last counts; no two entries have the same
// text before "=". The annotations only lower a limit: the agent never exceeds the grant. Pure; any
// thread.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::device {

template <typename Amount>  // Bytes or MilliGpu
struct AnnotatedLimit {
  std::string applies_to;  // a container or a GPU (UUID); "": all
  Amount amount;
  bool operator==(const AnnotatedLimit&) const = default;
};
template <typename Amount>
using GpuLimits = std::vector<AnnotatedLimit<Amount>>;

// Whether a limit applies to a GPU or MIG slice of this UUID, and not to a container.
bool IsGpuUuid(std::string_view applies_to);

// "" means no limit. INVALID_ARGUMENT names the entry.
Result<GpuLimits<Bytes>> ParseMemoryLimits(std::string_view text);
Result<GpuLimits<MilliGpu>> ParseComputeLimits(std::string_view text);

// nullopt if no limit matches.
template <typename Amount>
std::optional<Amount> LimitFor(const GpuLimits<Amount>& limits, std::string_view container,
                               std::string_view uuid) {
  std::optional<Amount> amount;
  for (const AnnotatedLimit<Amount>& limit : limits) {
    if (limit.applies_to.empty() || limit.applies_to == container || limit.applies_to == uuid)
      amount = limit.amount;
  }
  return amount;
}

// Whether a limit names this container.
template <typename Amount>
bool NamesContainer(const GpuLimits<Amount>& limits, std::string_view container) {
  return std::ranges::any_of(limits, [container](const AnnotatedLimit<Amount>& limit) {
    return limit.applies_to == container;
  });
}

// Checks annotation tessera.dev/compute-class: GPU work of lower classes waits for higher classes.
// INVALID_ARGUMENT lists the valid classes.
Status CheckComputeClass(std::string_view text);

}  // namespace tessera::device
