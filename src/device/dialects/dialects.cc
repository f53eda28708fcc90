// SPDX-License-Identifier: Apache-2.0
#include "src/device/dialects.h"

#include <algorithm>
#include <array>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/dialects/annotation_values.h"
#include "src/device/dialects/gpu_manager_annotations.h"
#include "src/device/dialects/parser.h"
#include "src/device/quantity.h"

namespace tessera::device {
namespace dialects {

Result<Bytes> ShareMemory(std::string_view container, std::string_view resource, int64_t amount,
                          Bytes unit) {
  if (amount > kMaxShareMemory.count() / unit.count()) {
    return Reject(container, resource, "{} units of {} MiB are more than any GPU has: request less",
                  amount, ToMiB(unit));
  }
  return unit * amount;
}

Status SetWholeDevices(std::string_view resource, int64_t count, ContainerRequest* request) {
  if (count > kMaxDevicesPerContainer) {
    return Reject(request->name, resource,
                  "{} devices are more than any node has: request less, or use several pods",
                  count);
  }
  request->count = static_cast<int>(count);
  request->per_gpu = {.compute = kWholeGpu};
  return Status::Ok();
}

}  // namespace dialects

namespace {

using dialects::Amounts;
using dialects::DialectParser;
using dialects::Reject;

const DialectParser* ParserOf(std::string_view resource) {
  static constexpr std::array<const DialectParser*, 4> kParsers = {
      &dialects::kNvidiaGpu, &dialects::kNvidiaMig, &dialects::kGpuMem, &dialects::kVcuda};
  const std::optional<Dialect> dialect = DialectOfResource(resource);
  for (const DialectParser* parser : kParsers) {
    if (parser->dialect == dialect) return parser;
  }
  return nullptr;
}

Result<int64_t> ParseAmount(std::string_view container, std::string_view resource,
                            std::string_view text, const DialectParser& parser) {
  const Result<int64_t> amount = ParseWholeQuantity(text);
  if (amount.ok()) return amount;
  return Reject(container, resource, "{}: {}", amount.status().message(), parser.whole_number_hint);
}

// The API server also requires equal requests and limits of extended resources
// (ValidateResourceRequirements in pkg/apis/core/validation). A mutating webhook runs before that
// check and gives a better message.
Status CheckRequests(const ContainerSpec& spec) {
  for (const auto& [resource, text] : spec.requests) {
    const DialectParser* parser = ParserOf(resource);
    if (parser == nullptr) continue;
    ASSIGN_OR_RETURN(const int64_t requested, ParseAmount(spec.name, resource, text, *parser));
    const auto limit = spec.limits.find(resource);
    if (limit == spec.limits.end()) {
      return Reject(spec.name, resource,
                    "is requested without a limit: write {} into resources.limits", requested);
    }
    ASSIGN_OR_RETURN(const int64_t limited,
                     ParseAmount(spec.name, resource, limit->second, *parser));
    if (requested != limited) {
      return Reject(spec.name, resource,
                    "the request {} is not the limit {}: leave the request out, or make them equal",
                    requested, limited);
    }
  }
  return Status::Ok();
}

Status RejectMix(const ContainerSpec& spec, const DialectParser& first,
                 const DialectParser& second) {
  return Error(Code::kInvalidArgument,
               "container \"{}\": requests both {} and {}: keep one of them", spec.name,
               NameOf(first.dialect), NameOf(second.dialect));
}

}  // namespace

std::string_view NameOf(MemoryUnit unit) { return unit == MemoryUnit::kGiB ? "GiB" : "MiB"; }

std::optional<MemoryUnit> MemoryUnitFromName(std::string_view name) {
  for (const MemoryUnit unit : {MemoryUnit::kGiB, MemoryUnit::kMiB}) {
    if (NameOf(unit) == name) return unit;
  }
  return std::nullopt;
}

Bytes SizeOf(MemoryUnit unit) { return unit == MemoryUnit::kGiB ? GiB(1) : MiB(1); }

Result<ContainerRequest> ParseContainer(const ContainerSpec& spec, const DialectOptions& options) {
  RETURN_IF_ERROR(CheckRequests(spec));
  ContainerRequest request{.name = spec.name, .phase = spec.phase};
  const DialectParser* parser = nullptr;
  Amounts amounts;
  for (const auto& [resource, text] : spec.limits) {
    const DialectParser* owner = ParserOf(resource);
    if (owner == nullptr) continue;
    ASSIGN_OR_RETURN(const int64_t amount, ParseAmount(spec.name, resource, text, *owner));
    // A zero is not a request: charts write 0 for unused resources.
    if (amount == 0) continue;
    if (parser != nullptr && parser != owner) return RejectMix(spec, *parser, *owner);
    parser = owner;
    amounts.emplace(resource, amount);
  }
  if (parser == nullptr) return request;
  request.dialect = parser->dialect;
  RETURN_IF_ERROR(parser->parse(amounts, options, &request));
  return request;
}

namespace {

std::string_view WithoutDomain(std::string_view resource) {
  return resource.substr(resource.find('/') + 1);
}

std::vector<std::string> ListAt(const StringMap& annotations, std::string_view key) {
  std::vector<std::string> list;
  const std::string* text = dialects::FindAnnotation(annotations, key);
  if (text == nullptr) return list;
  for (const std::string_view item : SplitList(*text)) list.emplace_back(item);
  return list;
}

// An empty list would allow every GPU, against the author's intention.
Result<std::vector<std::string>> AllowedAt(const StringMap& annotations, std::string_view key) {
  std::vector<std::string> list = ListAt(annotations, key);
  if (list.empty() && annotations.contains(key)) {
    return dialects::RejectAnnotation(key, "is empty: write a list like a,b or leave it out");
  }
  return list;
}

Result<Constraints> ParseConstraints(const StringMap& annotations) {
  Constraints constraints;
  ASSIGN_OR_RETURN(constraints.models, AllowedAt(annotations, names::kAnnotationGpuModels));
  ASSIGN_OR_RETURN(constraints.uuids, AllowedAt(annotations, names::kAnnotationGpuUuids));
  constraints.excluded_uuids = ListAt(annotations, names::kAnnotationGpuUuidsExcluded);
  for (const std::string& uuid : constraints.excluded_uuids) {
    const auto& wanted = constraints.uuids;
    if (std::find(wanted.begin(), wanted.end(), uuid) == wanted.end()) continue;
    return dialects::RejectAnnotation(names::kAnnotationGpuUuidsExcluded,
                                      "{} is also in {}: keep one of them", uuid,
                                      names::kAnnotationGpuUuids);
  }
  return constraints;
}

Status ParsePolicy(const StringMap& annotations, std::optional<PackingPolicy>* policy) {
  const std::string* text = dialects::FindAnnotation(annotations, names::kAnnotationPolicy);
  if (text == nullptr) return Status::Ok();
  *policy = PackingPolicyFromName(*text);
  if (*policy) return Status::Ok();
  return dialects::RejectAnnotation(names::kAnnotationPolicy,
                                    "\"{}\" is not a policy: write binpack or spread",
                                    text->substr(0, 64));
}

Status ParsePodAnnotations(const StringMap& annotations, DeviceRequest* request) {
  ASSIGN_OR_RETURN(request->constraints, ParseConstraints(annotations));
  RETURN_IF_ERROR(ParsePolicy(annotations, &request->policy));
  ASSIGN_OR_RETURN(request->elastic_limit, DecodeElasticLimit(annotations));
  return Status::Ok();
}

}  // namespace

Result<DeviceRequest> ParseRequest(const PodSpec& pod, const DialectOptions& options) {
  if (pod.containers.size() > kMaxContainers) {
    return Error(Code::kInvalidArgument, "{} containers in one pod are more than {}",
                 pod.containers.size(), kMaxContainers);
  }
  DeviceRequest request;
  bool has_main = false;
  for (const ContainerSpec& spec : pod.containers) {
    has_main = has_main || spec.phase == Phase::kMain;
    if (has_main && spec.phase != Phase::kMain) {
      return Error(Code::kInvalidArgument,
                   "container \"{}\": an init container after a main container", spec.name);
    }
    ASSIGN_OR_RETURN(ContainerRequest container, ParseContainer(spec, options));
    request.one_gpu = request.one_gpu || container.dialect == Dialect::kGpuMem;
    request.containers.push_back(std::move(container));
  }
  // Annotations of pods without GPU requests are ignored.
  if (request.requests_devices()) RETURN_IF_ERROR(ParsePodAnnotations(pod.annotations, &request));
  return request;
}

std::string RequestText(const ContainerRequest& container, MemoryUnit unit) {
  const Share& share = container.per_gpu;
  switch (container.dialect) {
    case Dialect::kNone:
      return "";
    case Dialect::kNvidiaGpu:
      return fmt::format("{}: {}", WithoutDomain(names::kResourceGpu), container.count);
    case Dialect::kNvidiaMig:
      return fmt::format("{}{}: {}", WithoutDomain(names::kResourceMigPrefix),
                         container.mig_profile, container.count);
    case Dialect::kGpuMem:
      return fmt::format("{}: {} {}", WithoutDomain(names::kResourceGpuMem),
                         share.memory.count() / SizeOf(unit).count(), NameOf(unit));
    case Dialect::kVcuda:
      break;
  }
  const int64_t cores = share.compute.count() * container.count / kVcudaCore.count();
  std::string text = fmt::format("{}: {}", WithoutDomain(names::kResourceVcudaCore), cores);
  if (!container.exclusive) {
    text += fmt::format(", {}: {}", WithoutDomain(names::kResourceVcudaMemory),
                        share.memory.count() / kVcudaMemoryBlock.count());
  }
  return text;
}

std::string RequestText(const DeviceRequest& request, MemoryUnit unit) {
  std::string text;
  for (const ContainerRequest& container : request.containers) {
    const std::string of_container = RequestText(container, unit);
    if (of_container.empty()) continue;
    if (!text.empty()) text += " + ";
    text += of_container;
  }
  return text;
}

}  // namespace tessera::device
