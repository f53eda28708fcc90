// SPDX-License-Identifier: Apache-2.0
// The pod annotations of TKEStack's gpu-manager and gpu-admission:
//
//   tencent.com/predicate-time         nanoseconds since 1970
//   tencent.com/predicate-node         name of the node
//   tencent.com/predicate-gpu-idx-<i>  minors of container i of spec.containers: "0" or "0,1"
//   tencent.com/gpu-assigned           "false" when chosen, "true" when granted
//   tencent.com/vcuda-core-limit       hundredths of a GPU up to which the pod may use idle compute
//
// The annotations contain minor numbers, which pod_annotations.h turns into UUIDs.
//
// Threads: any number, on separate objects. Errors: INVALID_ARGUMENT names the annotation and its
// value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/units.h"
#include "src/device/dialects.h"

namespace tessera::device {

struct GpuManagerAnnotations {
  std::map<int, std::vector<int>> minors;  // by container position; no empty list, no minor twice
  std::string node;                        // empty: unknown
  std::optional<int64_t> time_ns;
  std::optional<bool> assigned;

  bool operator==(const GpuManagerAnnotations&) const = default;
};

// REQUIRES: the values satisfy the rules of DecodeGpuManager.
StringMap EncodeGpuManager(const GpuManagerAnnotations& gpu_manager);
// nullopt if `annotations` names no GPU for any container.
Result<std::optional<GpuManagerAnnotations>> DecodeGpuManager(const StringMap& annotations);

// tencent.com/vcuda-core-limit; nullopt without the annotation.
Result<std::optional<MilliGpu>> DecodeElasticLimit(const StringMap& annotations);

}  // namespace tessera::device
