// SPDX-License-Identifier: Apache-2.0
#include "src/admission/rules.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/limit_annotations.h"
#include "src/device/pod_annotations.h"
#include "src/kube/objects.h"

namespace tessera::admission {
namespace {

using device::ContainerRequest;
using device::Dialect;

// Annotations of a pod that are requests to the scheduler.
constexpr std::array kRequestAnnotations = {
    names::kAnnotationGpuModels, names::kAnnotationGpuUuids, names::kAnnotationGpuUuidsExcluded,
    names::kAnnotationPolicy, names::kAnnotationVcudaCoreLimit};
constexpr std::string_view kNodeUserPrefix = "system:node:";

bool IsRequestAnnotation(std::string_view key) {
  return std::ranges::find(kRequestAnnotations, key) != kRequestAnnotations.end();
}

// A member that is an object; null if the object has no such member.
const Json* Member(const Json* object, std::string_view key) {
  const Json* found = object == nullptr ? nullptr : object->Find(key);
  return found != nullptr && found->is_object() ? found : nullptr;
}

const Json* AnnotationsOf(const Json& pod) {
  return Member(Member(&pod, "metadata"), "annotations");
}

std::optional<std::string> SkipReason(const AdmissionRequest& request) {
  if (request.resource == "pods" && request.group.empty() && request.subresource.empty() &&
      (request.operation == "CREATE" || request.operation == "UPDATE")) {
    return std::nullopt;
  }
  return fmt::format(
      "tessera checks pods that are created or updated, not {} of {}{}{}: correct the webhook's "
      "rules",
      TruncateUtf8(request.operation, 16), TruncateUtf8(request.resource, 32),
      request.subresource.empty() ? "" : "/", TruncateUtf8(request.subresource, 16));
}

// Whether this is the mirror pod of a static pod. A mirror pod must not be changed, because the
// kubelet compares it with the file on its node. A rejection would only hide the static pod.
bool IsMirror(const AdmissionRequest& request) {
  const Json* annotations = AnnotationsOf(request.object);
  return request.user.starts_with(kNodeUserPrefix) && annotations != nullptr &&
         annotations->Find(names::kAnnotationConfigMirror) != nullptr;
}

// The JSON Pointer (RFC 6901) to member `key` of the object at `path`.
std::string JsonPointer(std::string_view path, std::string_view key) {
  std::string out = fmt::format("{}/", path);
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

void RemoveAssignments(const AdmissionRequest& request, AdmissionAnswer* answer) {
  const Json* annotations = AnnotationsOf(request.object);
  if (annotations == nullptr) return;
  std::vector<std::string> removed;
  for (const auto& [key, value] : annotations->members()) {
    if (!device::IsAssignmentKey(key) || std::ranges::find(removed, key) != removed.end()) continue;
    removed.push_back(key);
    answer->patch.push_back(
        Json::MakeObject({{"op", Json::String("remove")},
                          {"path", Json::String(JsonPointer("/metadata/annotations", key))}}));
  }
  if (removed.empty()) return;
  answer->warnings.push_back(
      fmt::format("annotations that assign GPUs are written only by Tessera; removed: {}",
                  fmt::join(removed, ", ")));
}

Result<ledger::PodRequest> PodRequestOf(const Json& object, const AdmissionRequest& request,
                                        const AdmissionOptions& options) {
  ASSIGN_OR_RETURN(kube::PodObject pod, kube::Decode<kube::PodObject>(kube::RawObject(object)));
  if (pod.meta.ns.empty()) pod.meta.ns = request.ns;
  return ledger::PodRequestOf(pod, {.gpu_mem_unit = options.gpu_mem_unit});
}

// The annotations that request GPUs (IsRequestAnnotation), by key.
StringMap RequestAnnotationsOf(const Json& pod) {
  StringMap requests;
  const Json* annotations = AnnotationsOf(pod);
  if (annotations == nullptr) return requests;
  for (const auto& [key, value] : annotations->members()) {
    if (IsRequestAnnotation(key) && value.is_string()) requests[key] = value.string_value();
  }
  return requests;
}

Status CheckSize(const StringMap& annotations) {
  size_t bytes = 0;
  for (const auto& [key, value] : annotations) {
    bytes += value.size();
    if (bytes <= kMaxConstraintBytes) continue;
    return Error(
        Code::kInvalidArgument,
        "annotation {}: {} bytes, but all annotations that request GPUs may have {} together", key,
        value.size(), kMaxConstraintBytes);
  }
  return Status::Ok();
}

void WarnIfUnreadable(std::string_view key, const Status& parsed,
                      std::vector<std::string>* warnings) {
  if (parsed.ok()) return;
  warnings->push_back(fmt::format("annotation {} has no effect: {}", key, parsed.message()));
}

// Warns of an annotation that cannot be read, or that exceeds what the pod requests: an annotation
// can only lower the requested amount. `requested` returns the amount that a container requests; 0:
// the container is not limited.
template <typename Limits, typename Requested, typename Text>
void WarnOfLimits(std::string_view key, const Result<Limits>& limits,
                  const std::vector<ContainerRequest>& containers, Requested requested, Text text,
                  std::vector<std::string>* warnings) {
  WarnIfUnreadable(key, limits.status(), warnings);
  if (!limits.ok()) return;
  for (const auto& limit : *limits) {
    if (limit.applies_to.empty() || device::IsGpuUuid(limit.applies_to) ||
        std::ranges::count(containers, limit.applies_to, &ContainerRequest::name) > 0)
      continue;
    warnings->push_back(fmt::format("annotation {} has no effect: the pod has no container \"{}\"",
                                    key, TruncateUtf8(limit.applies_to, 64)));
  }
  for (const ContainerRequest& container : containers) {
    const auto limit = device::LimitFor(*limits, container.name, "");
    const auto requested_amount = requested(container);
    if (!limit || requested_amount == decltype(requested_amount)(0) || *limit <= requested_amount)
      continue;
    warnings->push_back(fmt::format(
        "container \"{}\": annotation {} has no effect: {} is more than the {} that the "
        "container requests, and the annotation only lowers the limit",
        container.name, key, text(*limit), text(requested_amount)));
  }
}

void WarnOfMemoryLimit(std::string_view value, const ledger::PodRequest& pod_request,
                       std::vector<std::string>* warnings) {
  const auto requested = [](const ContainerRequest& container) {
    return container.exclusive ? Bytes(0) : container.per_gpu.memory;
  };
  const auto text = [](Bytes bytes) { return fmt::format("{} MiB", bytes.count() >> 20); };
  WarnOfLimits(names::kAnnotationMemoryLimit, device::ParseMemoryLimits(value),
               pod_request.devices->containers, requested, text, warnings);
}

void WarnOfComputeLimit(std::string_view value, const ledger::PodRequest& pod_request,
                        std::vector<std::string>* warnings) {
  const auto requested = [&](const ContainerRequest& container) {
    if (container.exclusive || container.per_gpu.compute == kWholeGpu) return MilliGpu(0);
    if (container.per_gpu.compute == MilliGpu(0)) return MilliGpu(0);
    return std::max(container.per_gpu.compute,
                    pod_request.devices->elastic_limit.value_or(MilliGpu(0)));
  };
  const auto text = [](MilliGpu milli) { return fmt::format("{} hundredths", milli.count() / 10); };
  WarnOfLimits(names::kAnnotationComputeLimit, device::ParseComputeLimits(value),
               pod_request.devices->containers, requested, text, warnings);
}

void WarnOfComputeClass(std::string_view text, bool has_compute_share,
                        std::vector<std::string>* warnings) {
  const Status status = device::CheckComputeClass(TruncateUtf8(std::string(text), 64));
  WarnIfUnreadable(names::kAnnotationComputeClass, status, warnings);
  if (status.ok() && !has_compute_share) {
    warnings->push_back(
        fmt::format("annotation {} has no effect: no container requests {} below 100",
                    names::kAnnotationComputeClass, names::kResourceVcudaCore));
  }
}

void WarnOfAnnotations(const AdmissionRequest& request, const ledger::PodRequest& pod_request,
                       std::vector<std::string>* warnings) {
  const Json* annotations = AnnotationsOf(request.object);
  if (annotations == nullptr) return;
  const auto& containers = pod_request.devices->containers;
  const bool has_compute_share =
      std::ranges::any_of(containers, [](const ContainerRequest& container) {
        return container.dialect == Dialect::kVcuda && !container.exclusive;
      });
  for (const auto& [key, value] : annotations->members()) {
    const std::string_view text = value.is_string() ? value.string_value() : std::string_view();
    if (key == names::kAnnotationMemoryLimit) {
      WarnOfMemoryLimit(text, pod_request, warnings);
    } else if (key == names::kAnnotationComputeLimit) {
      WarnOfComputeLimit(text, pod_request, warnings);
    } else if (key == names::kAnnotationComputeClass) {
      WarnOfComputeClass(text, has_compute_share, warnings);
    } else if (key.starts_with(names::kAnnotationPrefix) && !IsRequestAnnotation(key) &&
               !device::IsAssignmentKey(key)) {
      warnings->push_back(fmt::format(
          "unknown annotation {}; Tessera reads these annotations of pods: {}, {}, {}, {}",
          TruncateUtf8(key, 64), fmt::join(kRequestAnnotations, ", "),
          names::kAnnotationMemoryLimit, names::kAnnotationComputeLimit,
          names::kAnnotationComputeClass));
    } else if (IsRequestAnnotation(key) && !pod_request.devices->requests_devices()) {
      warnings->push_back(
          fmt::format("annotation {} has no effect: no container requests GPUs", key));
    } else if (key == names::kAnnotationVcudaCoreLimit && !has_compute_share) {
      warnings->push_back(
          fmt::format("annotation {} has no effect: no container requests {} below 100", key,
                      names::kResourceVcudaCore));
    }
  }
  const auto& limit = pod_request.devices->elastic_limit;
  for (const ContainerRequest& container : containers) {
    if (!limit || container.dialect != Dialect::kVcuda || container.exclusive) continue;
    const MilliGpu core = container.per_gpu.compute;
    if (*limit >= core) continue;
    warnings->push_back(fmt::format(
        "container \"{0}\": annotation {1} has no effect: {2} is less than the {4} of {3} "
        "that the container requests, so the container gets {4}",
        container.name, names::kAnnotationVcudaCoreLimit,
        limit->count() / device::kVcudaCore.count(), names::kResourceVcudaCore,
        core.count() / device::kVcudaCore.count()));
  }
}

// Warns of requests without effect: memory in addition to whole GPUs; the number of GPUs of a node;
// and GPUs requested by an environment variable.
void WarnOfContainer(const Json& container, const ContainerRequest& requested,
                     std::vector<std::string>* warnings) {
  const Json* limits = Member(Member(&container, "resources"), "limits");
  const Json* vcuda_memory =
      limits == nullptr ? nullptr : limits->Find(names::kResourceVcudaMemory);
  if (requested.dialect == Dialect::kVcuda && requested.exclusive && vcuda_memory != nullptr) {
    warnings->push_back(fmt::format("container \"{}\": {} has no effect beside whole GPUs",
                                    requested.name, names::kResourceVcudaMemory));
  }
  if (limits != nullptr && limits->Find(names::kResourceGpuCount) != nullptr) {
    warnings->push_back(fmt::format(
        "container \"{}\": {} is the number of GPUs of a node and gives a pod none: "
        "request {} or {}",
        requested.name, names::kResourceGpuCount, names::kResourceGpu, names::kResourceGpuMem));
  }
  const Json* env = container.Find("env");
  if (requested.dialect != Dialect::kNone || env == nullptr || !env->is_array()) return;
  for (const Json& variable : env->items()) {
    if (!variable.is_object() ||
        variable.StringAt("name").value_or("") != names::kEnvVisibleDevices) {
      continue;
    }
    const std::string value = variable.StringAt("value").value_or("");
    if (value.empty() || value == "void" || value == "none") continue;
    warnings->push_back(
        fmt::format("container \"{}\": {} gives no GPU: request one in resources.limits",
                    requested.name, names::kEnvVisibleDevices));
  }
}

void WarnOfContainers(const Json& pod, const ledger::PodRequest& pod_request,
                      std::vector<std::string>* warnings) {
  const Json* spec = Member(&pod, "spec");
  auto next = pod_request.devices->containers.begin();
  for (const char* key : {"initContainers", "containers"}) {
    const Json* list = spec == nullptr ? nullptr : spec->Find(key);
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& container : list->items()) {
      if (next == pod_request.devices->containers.end()) return;
      WarnOfContainer(container, *next++, warnings);
    }
  }
}

}  // namespace

AdmissionRules::AdmissionRules(AdmissionOptions options, GetCapacity get_capacity)
    : options_(std::move(options)), get_capacity_(std::move(get_capacity)) {}

AdmissionAnswer AdmissionRules::Mutate(const AdmissionRequest& request) const {
  AdmissionAnswer answer;
  if (const auto why = SkipReason(request)) {
    answer.warnings.push_back(*why);
    return answer;
  }
  if (request.operation != "CREATE" || IsMirror(request)) return answer;
  RemoveAssignments(request, &answer);
  if (options_.runtime_class.empty()) return answer;
  const Json* spec = Member(&request.object, "spec");
  const auto pod_request = PodRequestOf(request.object, request, options_);
  // Validate rejects an invalid request.
  if (spec == nullptr || !pod_request.ok() || !pod_request->devices->requests_devices())
    return answer;
  const Json* runtime_class = spec->Find("runtimeClassName");
  if (runtime_class != nullptr && !runtime_class->is_null()) return answer;
  answer.patch.push_back(Json::MakeObject({{"op", Json::String("add")},
                                           {"path", Json::String("/spec/runtimeClassName")},
                                           {"value", Json::String(options_.runtime_class)}}));
  return answer;
}

AdmissionAnswer AdmissionRules::Validate(const AdmissionRequest& request) const {
  AdmissionAnswer answer;
  if (const auto why = SkipReason(request)) {
    answer.warnings.push_back(*why);
    return answer;
  }
  if (IsMirror(request)) return answer;
  if (request.operation == "UPDATE") {
    // An update can change only the annotations of a device request. An invalid device request must
    // not block an update that does not change it, nor an update of a pod that is being deleted.
    const Json* metadata = Member(&request.object, "metadata");
    if (metadata != nullptr && metadata->Find("deletionTimestamp") != nullptr) return answer;
    if (RequestAnnotationsOf(request.object) == RequestAnnotationsOf(request.old_object))
      return answer;
  }
  return ValidatePod(request);
}

AdmissionAnswer AdmissionRules::ValidatePod(const AdmissionRequest& request) const {
  AdmissionAnswer answer;
  answer.rejection = CheckSize(RequestAnnotationsOf(request.object));
  if (!answer.rejection.ok()) return answer;
  const auto pod_request = PodRequestOf(request.object, request, options_);
  if (!pod_request.ok()) {
    answer.rejection = pod_request.status();
    return answer;
  }
  WarnOfAnnotations(request, *pod_request, &answer.warnings);
  WarnOfContainers(request.object, *pod_request, &answer.warnings);
  const ClusterCapacity* capacity = get_capacity_();
  if (capacity == nullptr) return answer;
  for (const std::string& line : WhyNeverFits(*pod_request, *capacity)) {
    answer.warnings.push_back("the pod will wait: " + line);
  }
  return answer;
}

}  // namespace tessera::admission
