// SPDX-License-Identifier: Apache-2.0
// The kernel's own limit of device memory, the cgroup v2 controller "dmem" (Linux 6.14). It backs
// up the limiter. A driver that supports dmem registers a region for each of its memories, named by
// the PCI address of the GPU: "drm/0000:03:00.0/vram0". With another kernel or driver there are no
// regions, and no limit is set.
//
// Threads: any. ReadDmemRegions reads three small files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/units.h"

namespace tessera::oci {

inline constexpr std::string_view kCgroupRoot = "/sys/fs/cgroup";

// Added to a share for the contexts of processes, which the kernel counts and the share does not
// include: eight contexts of 512 MiB. The kernel's limit must not fail allocations that the limiter
// allows.
inline constexpr Bytes kDmemAllowance{int64_t{4} << 30};

struct DmemRegion {
  std::string name;
  Bytes capacity;
};

// The device memory that a container may use on one GPU.
struct DmemShare {
  std::string bus_id;  // "0000:03:00.0"
  Bytes memory;
};

// Parses dmem.capacity of the root cgroup: a line "<region> <bytes>" for each region. Other lines
// are skipped.
std::vector<DmemRegion> ParseDmemCapacity(std::string_view text);

// Returns the regions of the node if its containers have the controller: `cgroup_root` is a cgroup
// v2 hierarchy in which "dmem" is turned on below the root. Otherwise returns no region, because a
// low-level runtime would reject "dmem.max".
std::vector<DmemRegion> ReadDmemRegions(const std::string& cgroup_root);

// The value of "dmem.max": a line "<region> <bytes>" for each memory region of these GPUs; "" for
// no line. A region smaller than share plus allowance gets no line.
std::string DmemMaxValue(const std::vector<DmemRegion>& regions,
                         const std::vector<DmemShare>& shares);

}  // namespace tessera::oci
