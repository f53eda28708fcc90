// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/pod_request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "api/names.h"

namespace tessera::ledger {
namespace {

using kube::ContainerKind;

device::Phase PhaseOf(ContainerKind kind) {
  switch (kind) {
    case ContainerKind::kInit:
      return device::Phase::kInit;
    case ContainerKind::kSidecar:
      return device::Phase::kSidecar;
    case ContainerKind::kMain:
      break;
  }
  return device::Phase::kMain;
}

// The maximum over time of a resource that `parse` reads, as kube-scheduler computes it
// (PodRequests in k8s.io/component-helpers/resource). At one time, either an init container runs
// with the sidecars before it, or all sidecars and main containers run.
template <typename T, typename Parse>
Result<T> MostAtOnce(const kube::PodObject& pod, std::string_view resource, Parse parse) {
  T long_running{}, most{};
  const auto invalid = [&](const kube::Container& container, const Status& error) {
    return error.Annotate(fmt::format("container \"{}\": requests.{}", container.name, resource));
  };
  for (const kube::Container& container : pod.containers) {
    const auto found = container.requests.find(resource);
    if (found == container.requests.end()) continue;
    const Result<T> amount = parse(found->second);
    if (!amount.ok()) return invalid(container, amount.status());
    int64_t sum = 0;
    if (__builtin_add_overflow(long_running.count(), amount->count(), &sum)) {
      return invalid(container, Error(Code::kInvalidArgument,
                                      "\"{}\" and the earlier containers together are more than {}",
                                      found->second, std::numeric_limits<int64_t>::max()));
    }
    if (container.kind == ContainerKind::kInit) {
      most = std::max(most, T(sum));
    } else {
      long_running = T(sum);
    }
  }
  return std::max(most, long_running);
}

// The annotations of a pod that src/device reads.
bool IsPodAnnotation(std::string_view key) {
  constexpr std::array kRead = {names::kAnnotationAssignment,
                                names::kAnnotationGpuModels,
                                names::kAnnotationGpuUuids,
                                names::kAnnotationGpuUuidsExcluded,
                                names::kAnnotationPolicy,
                                names::kAnnotationGpuMemIndex,
                                names::kAnnotationGpuMemPod,
                                names::kAnnotationGpuMemDev,
                                names::kAnnotationGpuMemAssigned,
                                names::kAnnotationGpuMemAssumeTime,
                                names::kAnnotationGpushareAllocation,
                                names::kAnnotationPredicateTime,
                                names::kAnnotationPredicateNode,
                                names::kAnnotationGpuAssigned,
                                names::kAnnotationVcudaCoreLimit};
  return std::find(kRead.begin(), kRead.end(), key) != kRead.end() ||
         key.starts_with(names::kAnnotationPredicateGpuIndexPrefix);
}

// Whether one of the amounts by resource is of a GPU resource.
bool NamesGpus(const auto& amounts) {
  return std::ranges::any_of(
      amounts, [](const auto& amount) { return device::IsGpuResource(amount.first); });
}

}  // namespace

Result<PodRequest> PodRequestOf(const kube::PodObject& pod, const device::DialectOptions& options) {
  PodRequest request{
      .uid = pod.meta.uid, .ns = pod.meta.ns, .name = pod.meta.name, .priority = pod.priority};
  device::PodSpec spec{.annotations = pod.meta.annotations};
  for (const kube::Container& container : pod.containers) {
    spec.containers.push_back({.name = container.name,
                               .phase = PhaseOf(container.kind),
                               .limits = container.limits,
                               .requests = container.requests});
  }
  ASSIGN_OR_RETURN(device::DeviceRequest devices, device::ParseRequest(spec, options));
  request.devices = SharedValue(std::move(devices));
  if (pod.constraints != kube::NodeConstraints{}) {
    request.constraints = SharedValue(pod.constraints);
  }
  ASSIGN_OR_RETURN(request.cpu, MostAtOnce<device::MilliCpu>(pod, "cpu", device::ParseCpu));
  ASSIGN_OR_RETURN(request.memory, MostAtOnce<Bytes>(pod, "memory", device::ParseMemory));
  return request;
}

bool HasNoGpus(const kube::PodObject& pod) {
  return std::ranges::none_of(pod.containers, [](const kube::Container& container) {
    return NamesGpus(container.limits) || NamesGpus(container.requests);
  });
}

bool RequestsGpus(const Json& pod) {
  for (const char* list : {"initContainers", "containers"}) {
    const Json* containers = FindPath(pod, {"spec", list});
    if (containers == nullptr || !containers->is_array()) continue;
    for (const Json& container : containers->items()) {
      for (const char* part : {"limits", "requests"}) {
        const Json* amounts = FindPath(container, {"resources", part});
        if (amounts != nullptr && amounts->is_object() && NamesGpus(amounts->members()))
          return true;
      }
    }
  }
  return false;
}

kube::KeptFields KeptPodFields(ExtraKeptFields extra) {
  return {.label = [labels = extra.pod_labels](std::string_view) { return labels; },
          .annotation = IsPodAnnotation,
          .resource =
              [](std::string_view key) {
                return key == "cpu" || key == "memory" || device::IsGpuResource(key);
              },
          .constraints = extra.scheduling_constraints,
          .run_summary = extra.pod_runs};
}

kube::KeptFields KeptNodeFields(const device::NodeLabelKeys& labels, ExtraKeptFields extra) {
  return {.label =
              [labels, all = extra.scheduling_constraints](std::string_view key) {
                return all || key == labels.pool || key == labels.model;
              },
          .annotation = [](std::string_view key) { return key == names::kAnnotationDevices; },
          .resource =
              [all = extra.scheduling_constraints](std::string_view key) {
                // The command line derives the memory unit from a node's amount of gpu-mem.
                return key == "cpu" || key == "memory" || key == names::kResourceGpuMem ||
                       (all && device::IsGpuResource(key));
              }};
}

}  // namespace tessera::ledger
