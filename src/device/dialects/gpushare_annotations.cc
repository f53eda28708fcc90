// SPDX-License-Identifier: Apache-2.0
#include "src/device/dialects/gpushare_annotations.h"

#include <limits>
#include <string>

#include "api/names.h"
#include "src/device/dialects/annotation_values.h"
#include "src/device/json_fields.h"
#include "src/device/request.h"

namespace tessera::device {
namespace {

using dialects::kMaxIndex;
using dialects::RejectAnnotation;

// The smallest unit is 1 MiB.
constexpr int64_t kMaxUnits = kMaxShareMemory.count() / MiB(1).count();
constexpr std::string_view kAllocation = names::kAnnotationGpushareAllocation;

Status DecodeUnits(const Json& gpus, int container, std::map<int, int64_t>* units) {
  if (!gpus.is_object()) {
    return RejectAnnotation(kAllocation, "container {}: must be an object, not {}", container,
                            KindName(gpus.kind()));
  }
  for (const auto& [key, value] : gpus.members()) {
    ASSIGN_OR_RETURN(const int64_t gpu, dialects::ParseNumber(kAllocation, key, 0, kMaxIndex));
    const Result<int64_t> number = value.ToInt();
    if (!number.ok() || *number < 0 || *number > kMaxUnits) {
      return RejectAnnotation(kAllocation,
                              "container {}, GPU {}: {} is not a whole number between 0 and {}",
                              container, gpu, value.Serialize().substr(0, 64), kMaxUnits);
    }
    if (!units->emplace(static_cast<int>(gpu), *number).second) {
      return RejectAnnotation(kAllocation, "container {}, GPU {}: occurs twice", container, gpu);
    }
  }
  return Status::Ok();
}

}  // namespace

StringMap EncodeGpushare(const GpushareAnnotations& gpushare) {
  StringMap annotations;
  const auto set = [&](std::string_view key, std::string value) {
    annotations.emplace(key, std::move(value));
  };
  set(names::kAnnotationGpuMemIndex, std::to_string(gpushare.gpu_minor));
  set(names::kAnnotationGpuMemPod, std::to_string(gpushare.pod_units));
  if (gpushare.gpu_units) set(names::kAnnotationGpuMemDev, std::to_string(*gpushare.gpu_units));
  if (gpushare.assigned) {
    set(names::kAnnotationGpuMemAssigned, *gpushare.assigned ? "true" : "false");
  }
  if (gpushare.assume_time_ns) {
    set(names::kAnnotationGpuMemAssumeTime, std::to_string(*gpushare.assume_time_ns));
  }
  return annotations;
}

Result<std::optional<GpushareAnnotations>> DecodeGpushare(const StringMap& annotations) {
  constexpr int64_t kMaxTime = std::numeric_limits<int64_t>::max();
  GpushareAnnotations gpushare;
  ASSIGN_OR_RETURN(const std::optional<int64_t> minor,
                   dialects::NumberAt(annotations, names::kAnnotationGpuMemIndex, 0, kMaxIndex));
  ASSIGN_OR_RETURN(const std::optional<int64_t> units,
                   dialects::NumberAt(annotations, names::kAnnotationGpuMemPod, 0, kMaxUnits));
  if (!minor && !units) return std::optional<GpushareAnnotations>();
  if (!minor) return RejectAnnotation(names::kAnnotationGpuMemIndex, "is missing");
  if (!units) return RejectAnnotation(names::kAnnotationGpuMemPod, "is missing");
  gpushare.gpu_minor = static_cast<int>(*minor);
  gpushare.pod_units = *units;
  ASSIGN_OR_RETURN(gpushare.gpu_units,
                   dialects::NumberAt(annotations, names::kAnnotationGpuMemDev, 0, kMaxUnits));
  ASSIGN_OR_RETURN(gpushare.assigned,
                   dialects::BoolAt(annotations, names::kAnnotationGpuMemAssigned));
  ASSIGN_OR_RETURN(
      gpushare.assume_time_ns,
      dialects::NumberAt(annotations, names::kAnnotationGpuMemAssumeTime, 0, kMaxTime));
  return std::optional<GpushareAnnotations>(gpushare);
}

Result<GpushareAllocation> DecodeGpushareAllocation(std::string_view text) {
  const Result<Json> json = ParseAnnotation(text, kMaxGpushareAllocationBytes);
  if (!json.ok()) return RejectAnnotation(kAllocation, "{}", json.status().message());
  GpushareAllocation allocation;
  for (const auto& [key, gpus] : json->members()) {
    ASSIGN_OR_RETURN(const int64_t number, dialects::ParseNumber(kAllocation, key, 0, kMaxIndex));
    const int container = static_cast<int>(number);
    if (allocation.contains(container)) {
      return RejectAnnotation(kAllocation, "container {}: occurs twice", container);
    }
    RETURN_IF_ERROR(DecodeUnits(gpus, container, &allocation[container]));
  }
  return allocation;
}

}  // namespace tessera::device
