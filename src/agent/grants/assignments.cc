// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/assignments.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/device/pod_annotations.h"

namespace tessera::agent {
namespace {

Assignments::Assigned Read(const PodInfo& pod, const DeviceSet& set) {
  Assignments::Assigned assigned;
  if (!pod.request.ok()) {
    assigned.status = pod.request.status();
    return assigned;
  }
  Result<std::optional<device::Assignment>> read = device::AssignmentFrom(
      pod.annotations, *pod.request, set.inventory(), set.shares().gpu_mem_unit());
  if (!read.ok()) {
    assigned.status = read.status();
    return assigned;
  }
  if (!*read) return assigned;
  for (auto& [name, shares] : (*read)->containers) {
    const device::ContainerRequest* container = FindContainerRequest(*pod.request, name);
    const Status status =
        container == nullptr
            ? Error(Code::kInvalidArgument,
                    "container \"{}\" requests no GPU, but has an assignment", name)
            : device::CheckShares(*container, shares, set.inventory());
    if (status.ok()) {
      assigned.assignment.containers.emplace(name, std::move(shares));
    } else if (assigned.status.ok()) {
      assigned.status = status.Annotate("the pod's annotations");
    }
  }
  return assigned;
}

}  // namespace

const Assignments::Assigned& Assignments::Of(const std::shared_ptr<const PodInfo>& pod,
                                             const std::shared_ptr<const DeviceSet>& set) {
  CachedAssignment& cached = known_[pod->uid];
  if (cached.pod != pod || cached.set != set) cached = {pod, set, Read(*pod, *set)};
  return cached.assigned;
}

const device::ContainerRequest* FindContainerRequest(const device::DeviceRequest& request,
                                                     std::string_view container) {
  const auto found = std::find_if(
      request.containers.begin(), request.containers.end(),
      [&](const auto& candidate) { return candidate.name == container && candidate.count > 0; });
  return found == request.containers.end() ? nullptr : &*found;
}

}  // namespace tessera::agent
