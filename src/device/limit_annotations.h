// SPDX-License-Identifier: Apache-2.0
// Annotation tessera.dev/memory-limit of a pod: how much device memory its containers may use on
// each of their GPUs, while they run. A list of
//
//   8Gi            for each container, on each of its GPUs
//   main=8Gi       for this container
//   GPU-f1e2…=4Gi  for each container on this GPU
//
// of which the last that fits a container and a GPU counts. It says nothing about what the pod was
// granted, which is an upper bound (agent). Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::device {

struct MemoryLimit {
  std::string only;  // a container or the UUID of a GPU; "": all
  Bytes memory;
  bool operator==(const MemoryLimit&) const = default;
};
using MemoryLimits = std::vector<MemoryLimit>;

// "" is no limit. INVALID_ARGUMENT names the entry.
Result<MemoryLimits> ParseMemoryLimits(std::string_view text);

// Nothing where none of them fits.
std::optional<Bytes> LimitFor(const MemoryLimits& limits, std::string_view container,
                              std::string_view uuid);

}  // namespace tessera::device
