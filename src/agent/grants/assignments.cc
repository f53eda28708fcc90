// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/assignments.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/device/pod_annotations.h"

namespace tessera::agent {
namespace {

Assignments::AnnotatedAssignment Read(const PodInfo& pod, const DeviceSet& set) {
  Assignments::AnnotatedAssignment result;
  if (!pod.request.ok()) {
    result.status = pod.request.status();
    return result;
  }
  Result<std::optional<device::Assignment>> read = device::AssignmentFrom(
      pod.annotations, *pod.request, set.inventory(), set.shares().gpu_mem_unit());
  if (!read.ok()) {
    result.status = read.status();
    return result;
  }
  if (!*read) return result;
  for (auto& [name, shares] : (*read)->containers) {
    const device::ContainerRequest* container = FindContainerRequest(*pod.request, name);
    const Status status =
        container == nullptr
            ? Error(Code::kInvalidArgument,
                    "container \"{}\" requests no GPU, but has an assignment", name)
            : device::CheckShares(*container, shares, set.inventory());
    if (status.ok()) {
      result.assignment.containers.emplace(name, std::move(shares));
    } else if (result.status.ok()) {
      result.status = status.Annotate("the pod's annotations");
    }
  }
  return result;
}

}  // namespace

const Assignments::AnnotatedAssignment& Assignments::Of(
    const std::shared_ptr<const PodInfo>& pod, const std::shared_ptr<const DeviceSet>& set) {
  CachedAssignment& cached = cache_[pod->uid];
  if (cached.pod != pod || cached.set != set) cached = {pod, set, Read(*pod, *set)};
  return cached.result;
}

const device::ContainerRequest* FindContainerRequest(const device::DeviceRequest& request,
                                                     std::string_view container) {
  const auto found = std::find_if(
      request.containers.begin(), request.containers.end(),
      [&](const auto& candidate) { return candidate.name == container && candidate.count > 0; });
  return found == request.containers.end() ? nullptr : &*found;
}

}  // namespace tessera::agent
