// SPDX-License-Identifier: Apache-2.0
// All annotations of one pod that say which devices it has: our own, and those of gpushare and
// gpu-manager, which speak of minor numbers and units, turned into UUIDs and bytes and back. The
// scheduler writes them before it binds a pod, so that the older systems' tools still see the
// cluster, and reads them when it starts, also those that the older systems wrote.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/device/assignment.h"
#include "src/device/dialects.h"
#include "src/device/gpu.h"
#include "src/device/request.h"

namespace tessera::device {

// Whether the annotation is one of these: what a pod was given, which only whoever gives may write.
// What a pod asks for, such as tessera.dev/gpu-models, is none.
bool IsAssignmentKey(std::string_view key);

struct Binding {
  std::string node;
  int64_t time_ns = 0;  // since 1970
  MemoryUnit gpu_mem_unit = MemoryUnit::kGiB;
};

// What `container` gets on the device of that UUID: of a whole GPU or slice all of its memory.
// INVALID_ARGUMENT where the node has no such device.
Result<DeviceShare> ShareOn(const ContainerRequest& container, const NodeInventory& inventory,
                            std::string_view uuid);

// OK where `shares` are what `container` asks for, on devices of `inventory`.
Status CheckShares(const ContainerRequest& container, const std::vector<DeviceShare>& shares,
                   const NodeInventory& inventory);

// tessera.dev/assignment, and for containers of kGpuMem and kVcuda what their systems would write.
// Init containers stand in ours alone: the others never counted them. INVALID_ARGUMENT where
// `assignment` does not give each container of `request` what it asks for, on devices of
// `inventory`; FAILED_PRECONDITION where a GPU without minor number would have to be named by it.
Result<Annotations> AnnotationsFor(const Request& request, const Assignment& assignment,
                                   const NodeInventory& inventory, const Binding& binding);

// What the pod has on the node of `inventory`: by our annotation, else by the older ones, where
// gpushare's allocation goes before its other five. Nothing where it has none of them. Ours is
// taken as it is, also with GPUs that the node has no more. INVALID_ARGUMENT where an annotation is
// malformed, or where an older one names a GPU that the node has not, or not as many as `request`
// says.
Result<std::optional<Assignment>> AssignmentFrom(const Annotations& annotations,
                                                 const Request& request,
                                                 const NodeInventory& inventory,
                                                 MemoryUnit gpu_mem_unit);

}  // namespace tessera::device
