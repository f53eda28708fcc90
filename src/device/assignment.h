// SPDX-License-Identifier: Apache-2.0
// The devices assigned to the containers of a pod, and the pod annotation tessera.dev/assignment
// (api/names.h). The scheduler writes it before it binds the pod; for pods that bypass the
// scheduler, the agent writes what it granted. JSON, version 1:
//
//   {"version":1,"containers":{"main":[{"gpu":"GPU-…","milli":300,"bytes":5368709120}, …],
//                              "side":[{"gpu":"MIG-…","milli":1000,"bytes":10737418240}]}}
//
// Containers without devices are left out. Equal assignments give equal text. src/device/dialects
// has the older annotations of other systems.
//
// Threads: any number, on separate objects.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::device {

inline constexpr int kAssignmentVersion = 1;
inline constexpr size_t kMaxAssignmentBytes = 64 << 10;

// A part of one device, or all of it.
struct DeviceShare {
  std::string uuid;  // of a GPU, or of a MIG slice
  MilliGpu compute;  // thousandths of the device; 1000: the whole device; 0: none reserved
  Bytes memory;      // also set for a whole device, so that readers need no inventory
  bool operator==(const DeviceShare&) const = default;
};

std::vector<std::string> UuidsOf(const std::vector<DeviceShare>& shares);

struct Assignment {
  // By container name, including init containers. Devices are in the order in which the container
  // sees them, each at most once.
  std::map<std::string, std::vector<DeviceShare>, std::less<>> containers;
  bool operator==(const Assignment&) const = default;
};

// INVALID_ARGUMENT for a value that DecodeAssignment would reject, RESOURCE_EXHAUSTED above
// kMaxAssignmentBytes.
Result<std::string> EncodeAssignment(const Assignment& assignment);

// INVALID_ARGUMENT names the field and the reason: "containers.main[1].milli: 1001 is not between 0
// and 1000". Ignores unknown members, so that later releases may add some. Rejects another
// "version".
Result<Assignment> DecodeAssignment(std::string_view text);

}  // namespace tessera::device
