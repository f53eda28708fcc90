// SPDX-License-Identifier: Apache-2.0
// Reads and writes all pod annotations that contain assigned devices: Tessera's annotation, and
// those of gpushare and gpu-manager, which use minor numbers and units instead of UUIDs and bytes.
// The scheduler writes all of them before it binds a pod, so that tools of the older systems keep
// working. At its start the scheduler reads them all, including annotations that the older systems
// wrote.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/device/assignment.h"
#include "src/device/dialects.h"
#include "src/device/gpu.h"
#include "src/device/request.h"

namespace tessera::device {

// Whether the annotation contains an assignment, which only the scheduler and the agent may write.
// Requests such as tessera.dev/gpu-models do not.
bool IsAssignmentKey(std::string_view key);

// The values besides the assignment that annotations of the older systems contain.
struct Binding {
  std::string node;
  int64_t time_ns = 0;  // since 1970
  MemoryUnit gpu_mem_unit = MemoryUnit::kGiB;
};

// The share of `container` on the device with this UUID; for a whole GPU or slice it includes all
// of the memory. INVALID_ARGUMENT if the node has no such device.
Result<DeviceShare> ShareOn(const ContainerRequest& container, const NodeInventory& inventory,
                            std::string_view uuid);

// OK if `shares` match the request of `container`, on devices of `inventory`.
Status CheckShares(const ContainerRequest& container, const std::vector<DeviceShare>& shares,
                   const NodeInventory& inventory);

// tessera.dev/assignment and, for containers of kGpuMem and kVcuda, the annotations of their
// systems. Only tessera.dev/assignment contains init containers, which the other systems ignore.
// INVALID_ARGUMENT if `assignment` does not match `request` for each container, on devices of
// `inventory`; FAILED_PRECONDITION if an annotation needs the minor number of a GPU that has none.
Result<StringMap> AnnotationsFor(const DeviceRequest& request, const Assignment& assignment,
                                 const NodeInventory& inventory, const Binding& binding);

// The pod's devices on the node of `inventory`, from the first of these that exists:
// 1. tessera.dev/assignment, returned unchanged, even with GPUs that the node no longer has;
// 2. gpushare's allocation, else its five other annotations; and gpu-manager's annotations.
//
// nullopt if the pod has no such annotation. INVALID_ARGUMENT: an annotation is malformed, or an
// annotation of an older system names a GPU that the node does not have, or another number of GPUs
// than `request`.
Result<std::optional<Assignment>> AssignmentFrom(const StringMap& annotations,
                                                 const DeviceRequest& request,
                                                 const NodeInventory& inventory,
                                                 MemoryUnit gpu_mem_unit);

}  // namespace tessera::device
