// SPDX-License-Identifier: Apache-2.0
#include "src/device/dialects.h"

#include <algorithm>
#include <map>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/dialects/annotation_values.h"
#include "src/device/dialects/gpu_manager_annotations.h"
#include "src/device/mig_profile.h"
#include "src/device/quantity.h"

namespace tessera::device {
namespace {

// Non-negative amounts of one dialect's resources that a container requests, by resource name.
using Amounts = std::map<std::string, int64_t, std::less<>>;

struct DialectParser {
  Dialect dialect;
  // Appended to the error "is not a whole number": advice on what to request instead.
  std::string_view whole_number_hint;
  // Sets count and shares of `request`, whose name, phase and dialect are set. At least one amount
  // is not 0.
  Status (*parse)(const Amounts& amounts, const DialectOptions& options, ContainerRequest* request);
};

// `container "main": tencent.com/vcuda-core: 150 is …`
template <typename... Args>
Status Reject(std::string_view container, std::string_view resource,
              fmt::format_string<Args...> format, Args&&... args) {
  return Error(Code::kInvalidArgument, "container \"{}\": {}: {}", container, resource,
               fmt::format(format, std::forward<Args>(args)...));
}

// `amount` × `unit` as the memory of a share; rejected above kMaxShareMemory.
Result<Bytes> ShareMemory(std::string_view container, std::string_view resource, int64_t amount,
                          Bytes unit) {
  if (amount > kMaxShareMemory.count() / unit.count()) {
    return Reject(container, resource, "{} units of {} MiB are more than any GPU has: request less",
                  amount, ToMiB(unit));
  }
  return unit * amount;
}

// Sets the request to `count` whole devices; rejects a count above kMaxDevicesPerContainer.
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

// nvidia.com/gpu and nvidia.com/mig-<profile>, as in NVIDIA's device plugin.
Status ParseGpu(const Amounts& amounts, const DialectOptions&, ContainerRequest* request) {
  request->exclusive = true;
  return SetWholeDevices(names::kResourceGpu, amounts.begin()->second, request);
}

Status ParseMig(const Amounts& amounts, const DialectOptions&, ContainerRequest* request) {
  for (const auto& [resource, amount] : amounts) {
    if (amount == 0) continue;
    if (!request->mig_profile.empty()) {
      return Reject(request->name, resource,
                    "the container requests {}{} too: request one profile in each container",
                    names::kResourceMigPrefix, request->mig_profile);
    }
    request->mig_profile = resource.substr(names::kResourceMigPrefix.size());
    if (!IsMigProfile(request->mig_profile)) {
      return Reject(request->name, resource,
                    "\"{}\" is not a MIG profile: request one like {}1g.10gb", request->mig_profile,
                    names::kResourceMigPrefix);
    }
    RETURN_IF_ERROR(SetWholeDevices(resource, amount, request));
  }
  return Status::Ok();
}

// aliyun.com/gpu-mem, as in Alibaba's gpushare: memory of one GPU that all containers of the pod
// share, without a compute request.
Status ParseGpuMem(const Amounts& amounts, const DialectOptions& options,
                   ContainerRequest* request) {
  const Bytes unit = SizeOf(options.gpu_mem_unit);
  ASSIGN_OR_RETURN(request->per_gpu.memory, ShareMemory(request->name, names::kResourceGpuMem,
                                                        amounts.begin()->second, unit));
  request->count = 1;
  return Status::Ok();
}

// tencent.com/vcuda-core and tencent.com/vcuda-memory, as in TKEStack's gpu-manager.
constexpr int64_t kCoresPerGpu = kWholeGpu.count() / kVcudaCore.count();

int64_t AmountOf(const Amounts& amounts, std::string_view resource) {
  const auto amount = amounts.find(resource);
  return amount == amounts.end() ? 0 : amount->second;
}

Status ParseShare(int64_t core, int64_t memory, ContainerRequest* request) {
  if (memory == 0) {
    return Reject(request->name, names::kResourceVcudaMemory,
                  "is missing or 0 beside {}: {}: request 1 or more blocks of 256 MiB",
                  names::kResourceVcudaCore, core);
  }
  ASSIGN_OR_RETURN(request->per_gpu.memory, ShareMemory(request->name, names::kResourceVcudaMemory,
                                                        memory, kVcudaMemoryBlock));
  request->per_gpu.compute = kVcudaCore * core;
  request->count = 1;
  return Status::Ok();
}

Status ParseVcuda(const Amounts& amounts, const DialectOptions&, ContainerRequest* request) {
  const int64_t core = AmountOf(amounts, names::kResourceVcudaCore);
  const int64_t memory = AmountOf(amounts, names::kResourceVcudaMemory);
  if (core == 0) {
    return Reject(request->name, names::kResourceVcudaCore,
                  "is missing or 0 beside {}: {}: request 1 to 99, or a multiple of 100",
                  names::kResourceVcudaMemory, memory);
  }
  if (core < kCoresPerGpu) return ParseShare(core, memory, request);
  // Whole GPUs come with all their memory, so a memory request beside them is ignored.
  request->exclusive = true;
  RETURN_IF_ERROR(SetWholeDevices(names::kResourceVcudaCore, core / kCoresPerGpu, request));
  const int64_t below = core - core % kCoresPerGpu;
  if (core == below) return Status::Ok();
  return Reject(request->name, names::kResourceVcudaCore,
                "{} is neither 1 to 99 nor a multiple of 100: request {} or {}", core, below,
                below + kCoresPerGpu);
}

constexpr DialectParser kParsers[] = {
    {Dialect::kNvidiaGpu,
     "request whole GPUs, or a part of one with tencent.com/vcuda-core or aliyun.com/gpu-mem",
     ParseGpu},
    {Dialect::kNvidiaMig, "request whole slices", ParseMig},
    {Dialect::kGpuMem, "request whole units, GiB or MiB as the cluster is configured", ParseGpuMem},
    {Dialect::kVcuda, "request whole units", ParseVcuda},
};

const DialectParser* ParserOf(std::string_view resource) {
  const std::optional<Dialect> dialect = DialectOfResource(resource);
  for (const DialectParser& parser : kParsers) {
    if (parser.dialect == dialect) return &parser;
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
