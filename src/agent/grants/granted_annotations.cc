// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/granted_annotations.h"

#include <utility>

#include "api/names.h"
#include "src/device/pod_annotations.h"

namespace tessera::agent {
namespace {

StringMap AnnotationsOfChoice(const PodInfo& pod, const device::Assignment& chosen,
                              const device::NodeInventory& inventory,
                              const device::Binding& binding) {
  if (pod.request.ok()) {
    Result<StringMap> all = device::AnnotationsFor(*pod.request, chosen, inventory, binding);
    if (all.ok()) return *std::move(all);
  }
  // The older annotations describe all containers of a pod, so they are written only when every
  // container that requests GPUs has them.
  StringMap annotations;
  Result<std::string> text = device::EncodeAssignment(chosen);
  if (text.ok()) annotations.emplace(names::kAnnotationAssignment, *std::move(text));
  return annotations;
}

}  // namespace

StringMap AnnotationsAfterGrant(const PodInfo& pod, const device::Assignment* chosen,
                                const device::NodeInventory& inventory,
                                device::MemoryUnit gpu_mem_unit, const std::string& node,
                                int64_t now_ns) {
  StringMap wanted;
  const bool has_assignment = pod.annotations.contains(names::kAnnotationAssignment);
  if (chosen != nullptr) {
    wanted = AnnotationsOfChoice(pod, *chosen, inventory,
                                 {.node = node, .time_ns = now_ns, .gpu_mem_unit = gpu_mem_unit});
  }
  for (const std::string_view key :
       {names::kAnnotationGpuMemAssigned, names::kAnnotationGpuAssigned}) {
    const bool has_flag = pod.annotations.contains(key) || wanted.contains(key);
    if (has_flag) wanted[std::string(key)] = "true";
  }
  std::erase_if(wanted, [&](const auto& entry) {
    const auto current = pod.annotations.find(entry.first);
    // The time differs at each call; the time of the first call stays.
    const bool is_time = entry.first == names::kAnnotationGpuMemAssumeTime ||
                         entry.first == names::kAnnotationPredicateTime;
    return current != pod.annotations.end() &&
           (current->second == entry.second || (has_assignment && is_time));
  });
  return wanted;
}

}  // namespace tessera::agent
