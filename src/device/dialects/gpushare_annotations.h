// SPDX-License-Identifier: Apache-2.0
// The pod annotations of Alibaba's gpushare, as its scheduler extender, device plugin and kubectl
// plugin write and read them:
//
//   ALIYUN_COM_GPU_MEM_IDX          minor number of the GPU
//   ALIYUN_COM_GPU_MEM_POD          units of aliyun.com/gpu-mem that the pod has
//   ALIYUN_COM_GPU_MEM_DEV          units that the GPU has
//   ALIYUN_COM_GPU_MEM_ASSIGNED     "false" when bound, "true" when granted
//   ALIYUN_COM_GPU_MEM_ASSUME_TIME  nanoseconds since 1970
//   scheduler.framework.gpushare.allocation   {"<container>":{"<gpu>":<units>}}, read only
//
// The annotations contain minor numbers and units, which pod_annotations.h turns into UUIDs and
// bytes.
//
// Threads: any number, on separate objects. Errors: INVALID_ARGUMENT names the annotation and its
// value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/device/dialects.h"

namespace tessera::device {

inline constexpr size_t kMaxGpushareAllocationBytes = 16 << 10;

struct GpushareAnnotations {
  int gpu_minor = 0;
  int64_t pod_units = 0;
  // Annotations that may be missing.
  std::optional<int64_t> gpu_units;
  std::optional<bool> assigned;
  std::optional<int64_t> assume_time_ns;

  bool operator==(const GpushareAnnotations&) const = default;
};

// REQUIRES: no number is negative.
StringMap EncodeGpushare(const GpushareAnnotations& gpushare);
// nullopt if `annotations` has neither ALIYUN_COM_GPU_MEM_IDX nor ALIYUN_COM_GPU_MEM_POD.
Result<std::optional<GpushareAnnotations>> DecodeGpushare(const StringMap& annotations);

// Units by position of the container in spec.containers, then by minor number.
using GpushareAllocation = std::map<int, std::map<int, int64_t>>;
Result<GpushareAllocation> DecodeGpushareAllocation(std::string_view text);

}  // namespace tessera::device
