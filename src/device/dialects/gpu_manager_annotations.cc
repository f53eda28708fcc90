// SPDX-License-Identifier: Apache-2.0
#include "src/device/dialects/gpu_manager_annotations.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/dialects/annotation_values.h"

namespace tessera::device {
namespace {

using dialects::kMaxIndex;
using dialects::RejectAnnotation;

constexpr std::string_view kIndexPrefix = names::kAnnotationPredicateGpuIndexPrefix;
// More GPUs than any node has.
constexpr size_t kMaxMinors = 64;
constexpr size_t kMaxNodeName = 253;

Result<std::vector<int>> ParseMinors(std::string_view key, std::string_view text) {
  std::vector<int> minors;
  for (const std::string_view part : Split(text, ',')) {
    ASSIGN_OR_RETURN(const int64_t minor, dialects::ParseNumber(key, part, 0, kMaxIndex));
    if (std::find(minors.begin(), minors.end(), minor) != minors.end()) {
      return RejectAnnotation(key, "{} occurs twice", minor);
    }
    if (minors.size() == kMaxMinors) {
      return RejectAnnotation(key, "names more than {} GPUs", kMaxMinors);
    }
    minors.push_back(static_cast<int>(minor));
  }
  return minors;
}

// Also accepts some names that are not DNS subdomains, which is harmless in comparisons.
bool IsNodeName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNodeName) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
}

Status DecodeNode(const StringMap& annotations, std::string* node) {
  constexpr std::string_view kKey = names::kAnnotationPredicateNode;
  const std::string* text = dialects::FindAnnotation(annotations, kKey);
  if (text == nullptr) return Status::Ok();
  if (!IsNodeName(*text)) {
    return RejectAnnotation(kKey, "\"{}\" is not the name of a node", text->substr(0, 64));
  }
  *node = *text;
  return Status::Ok();
}

}  // namespace

StringMap EncodeGpuManager(const GpuManagerAnnotations& gpu_manager) {
  StringMap annotations;
  for (const auto& [container, minors] : gpu_manager.minors) {
    annotations.emplace(fmt::format("{}{}", kIndexPrefix, container),
                        fmt::format("{}", fmt::join(minors, ",")));
  }
  if (!gpu_manager.node.empty()) {
    annotations.emplace(names::kAnnotationPredicateNode, gpu_manager.node);
  }
  if (gpu_manager.time_ns) {
    annotations.emplace(names::kAnnotationPredicateTime, std::to_string(*gpu_manager.time_ns));
  }
  if (gpu_manager.assigned) {
    annotations.emplace(names::kAnnotationGpuAssigned, *gpu_manager.assigned ? "true" : "false");
  }
  return annotations;
}

Result<std::optional<GpuManagerAnnotations>> DecodeGpuManager(const StringMap& annotations) {
  GpuManagerAnnotations gpu_manager;
  for (auto entry = annotations.lower_bound(kIndexPrefix);
       entry != annotations.end() && entry->first.starts_with(kIndexPrefix); ++entry) {
    const auto& [key, value] = *entry;
    ASSIGN_OR_RETURN(const int64_t container,
                     dialects::ParseNumber(key, std::string_view(key).substr(kIndexPrefix.size()),
                                           0, kMaxIndex));
    ASSIGN_OR_RETURN(gpu_manager.minors[static_cast<int>(container)], ParseMinors(key, value));
  }
  if (gpu_manager.minors.empty()) return std::optional<GpuManagerAnnotations>();
  RETURN_IF_ERROR(DecodeNode(annotations, &gpu_manager.node));
  ASSIGN_OR_RETURN(gpu_manager.time_ns,
                   dialects::NumberAt(annotations, names::kAnnotationPredicateTime, 0,
                                      std::numeric_limits<int64_t>::max()));
  ASSIGN_OR_RETURN(gpu_manager.assigned,
                   dialects::BoolAt(annotations, names::kAnnotationGpuAssigned));
  return std::optional<GpuManagerAnnotations>(std::move(gpu_manager));
}

Result<std::optional<MilliGpu>> DecodeElasticLimit(const StringMap& annotations) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> cores,
                   dialects::NumberAt(annotations, names::kAnnotationVcudaCoreLimit, 1, 100));
  if (!cores) return std::optional<MilliGpu>();
  return std::optional<MilliGpu>(kVcudaCore * *cores);
}

}  // namespace tessera::device
