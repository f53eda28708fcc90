// SPDX-License-Identifier: Apache-2.0
#include "src/device/pod_annotations.h"

#include <algorithm>
#include <vector>

#include "api/names.h"
#include "src/device/dialects/annotation_values.h"
#include "src/device/dialects/gpu_manager_annotations.h"
#include "src/device/dialects/gpushare_annotations.h"

namespace tessera::device {
namespace {

using dialects::RejectAnnotation;

// The containers without init containers. gpushare and gpu-manager name a container by its position
// in this list.
std::vector<const ContainerRequest*> MainContainers(const DeviceRequest& request) {
  std::vector<const ContainerRequest*> main;
  for (const ContainerRequest& container : request.containers) {
    if (container.phase == Phase::kMain) main.push_back(&container);
  }
  return main;
}

// Checks that each container has exactly what it requests, and no unknown container has a device.
Status Check(const DeviceRequest& request, const Assignment& assignment,
             const NodeInventory& inventory) {
  static const std::vector<DeviceShare> kNothing;
  size_t found = 0;
  const std::string* one_gpu = nullptr;
  for (const ContainerRequest& container : request.containers) {
    const auto shares = assignment.containers.find(container.name);
    const bool assigned = shares != assignment.containers.end();
    found += assigned ? 1 : 0;
    RETURN_IF_ERROR(CheckShares(container, assigned ? shares->second : kNothing, inventory));
    if (container.dialect != Dialect::kGpuMem) continue;
    const std::string& uuid = shares->second.front().uuid;
    if (one_gpu != nullptr && *one_gpu != uuid) {
      return Error(
          Code::kInvalidArgument,
          "container \"{}\" is assigned {}, and another container {}: all containers with {} "
          "must be on one GPU",
          container.name, uuid, *one_gpu, names::kResourceGpuMem);
    }
    one_gpu = &uuid;
  }
  if (found == assignment.containers.size()) return Status::Ok();
  return Error(Code::kInvalidArgument,
               "{} containers are assigned devices, but the pod has only {} of them",
               assignment.containers.size(), found);
}

// The minor number of a GPU for annotation `key`. REQUIRES: the node has the GPU.
Result<int> MinorFor(std::string_view key, const NodeInventory& inventory, std::string_view uuid) {
  const Gpu* gpu = inventory.Find(uuid);
  TESSERA_CHECK(gpu != nullptr);
  if (gpu->minor) return *gpu->minor;
  return Error(Code::kFailedPrecondition, "{} has no minor number, which annotation {} needs", uuid,
               key);
}

Status AddGpushare(const DeviceRequest& request, const Assignment& assignment,
                   const NodeInventory& inventory, const Binding& binding, StringMap* annotations) {
  const std::vector<const ContainerRequest*> main = MainContainers(request);
  const auto first = std::find_if(main.begin(), main.end(), [](const ContainerRequest* container) {
    return container->dialect == Dialect::kGpuMem;
  });
  if (first == main.end()) return Status::Ok();
  const std::string& uuid = assignment.containers.find((*first)->name)->second.front().uuid;
  ASSIGN_OR_RETURN(const int minor, MinorFor(names::kAnnotationGpuMemIndex, inventory, uuid));
  const int64_t unit = SizeOf(binding.gpu_mem_unit).count();
  annotations->merge(EncodeGpushare({.gpu_minor = minor,
                                     .pod_units = request.OneGpuShare().memory.count() / unit,
                                     .gpu_units = inventory.Find(uuid)->memory.count() / unit,
                                     .assigned = false,
                                     .assume_time_ns = binding.time_ns}));
  return Status::Ok();
}

Status AddGpuManager(const DeviceRequest& request, const Assignment& assignment,
                     const NodeInventory& inventory, const Binding& binding,
                     StringMap* annotations) {
  GpuManagerAnnotations gpu_manager{
      .node = binding.node, .time_ns = binding.time_ns, .assigned = false};
  const std::vector<const ContainerRequest*> main = MainContainers(request);
  for (size_t i = 0; i < main.size(); ++i) {
    if (main[i]->dialect != Dialect::kVcuda) continue;
    std::vector<int>& minors = gpu_manager.minors[static_cast<int>(i)];
    const std::string key = fmt::format("{}{}", names::kAnnotationPredicateGpuIndexPrefix, i);
    for (const DeviceShare& share : assignment.containers.find(main[i]->name)->second) {
      ASSIGN_OR_RETURN(const int minor, MinorFor(key, inventory, share.uuid));
      minors.push_back(minor);
    }
  }
  if (!gpu_manager.minors.empty()) annotations->merge(EncodeGpuManager(gpu_manager));
  return Status::Ok();
}

Result<const Gpu*> GpuAt(const NodeInventory& inventory, std::string_view key, int minor) {
  const Gpu* gpu = inventory.FindByMinor(minor);
  if (gpu != nullptr) return gpu;
  return RejectAnnotation(key, "the node has no GPU with minor number {}", minor);
}

Result<Assignment> FromGpuManager(const GpuManagerAnnotations& gpu_manager,
                                  const DeviceRequest& request, const NodeInventory& inventory) {
  const std::vector<const ContainerRequest*> main = MainContainers(request);
  Assignment assignment;
  for (const auto& [position, minors] : gpu_manager.minors) {
    const std::string key =
        fmt::format("{}{}", names::kAnnotationPredicateGpuIndexPrefix, position);
    const bool known = static_cast<size_t>(position) < main.size();
    if (!known || main[position]->dialect != Dialect::kVcuda) {
      return RejectAnnotation(key, "the container at this position does not request {}",
                              names::kResourceVcudaCore);
    }
    const ContainerRequest& container = *main[position];
    if (minors.size() != static_cast<size_t>(container.count)) {
      return RejectAnnotation(key, "names {} GPUs, but container \"{}\" requests {}", minors.size(),
                              container.name, container.count);
    }
    for (const int minor : minors) {
      ASSIGN_OR_RETURN(const Gpu* gpu, GpuAt(inventory, key, minor));
      ASSIGN_OR_RETURN(DeviceShare share, ShareOn(container, inventory, gpu->uuid));
      assignment.containers[container.name].push_back(std::move(share));
    }
  }
  return assignment;
}

Result<Assignment> FromGpushare(const GpushareAnnotations& gpushare, const DeviceRequest& request,
                                const NodeInventory& inventory) {
  ASSIGN_OR_RETURN(const Gpu* gpu,
                   GpuAt(inventory, names::kAnnotationGpuMemIndex, gpushare.gpu_minor));
  Assignment assignment;
  for (const ContainerRequest* container : MainContainers(request)) {
    if (container->dialect != Dialect::kGpuMem) continue;
    ASSIGN_OR_RETURN(DeviceShare share, ShareOn(*container, inventory, gpu->uuid));
    assignment.containers[container->name].push_back(std::move(share));
  }
  return assignment;
}

Result<Assignment> FromAllocation(const GpushareAllocation& allocation,
                                  const DeviceRequest& request, const NodeInventory& inventory,
                                  MemoryUnit unit) {
  constexpr std::string_view kKey = names::kAnnotationGpushareAllocation;
  const std::vector<const ContainerRequest*> main = MainContainers(request);
  Assignment assignment;
  for (const auto& [position, units_by_minor] : allocation) {
    if (static_cast<size_t>(position) >= main.size()) {
      return RejectAnnotation(kKey, "container {}: the pod has only {} container{}", position,
                              main.size(), main.size() == 1 ? "" : "s");
    }
    for (const auto& [minor, units] : units_by_minor) {
      if (units == 0) continue;
      if (units > kMaxShareMemory.count() / SizeOf(unit).count()) {
        return RejectAnnotation(kKey, "container {}, GPU {}: {} {} are more than any GPU has",
                                position, minor, units, NameOf(unit));
      }
      ASSIGN_OR_RETURN(const Gpu* gpu, GpuAt(inventory, kKey, minor));
      assignment.containers[main[position]->name].push_back(
          {.uuid = gpu->uuid, .memory = SizeOf(unit) * units});
    }
  }
  return assignment;
}

}  // namespace

bool IsAssignmentKey(std::string_view key) {
  return key == names::kAnnotationAssignment || key == names::kAnnotationGpushareAllocation ||
         key == names::kAnnotationGpuAssigned || key.starts_with(names::kAnnotationGpuMemPrefix) ||
         key.starts_with(names::kAnnotationPredicatePrefix);
}

Result<DeviceShare> ShareOn(const ContainerRequest& container, const NodeInventory& inventory,
                            std::string_view uuid) {
  DeviceShare share{.uuid = std::string(uuid),
                    .compute = container.per_gpu.compute,
                    .memory = container.per_gpu.memory};
  if (container.dialect == Dialect::kNvidiaMig) {
    const MigSlice* slice = inventory.FindMigSlice(uuid);
    if (slice == nullptr || slice->profile != container.mig_profile) {
      return Error(Code::kInvalidArgument,
                   "container \"{}\": {} is not a MIG slice of this node with profile {}",
                   container.name, uuid, container.mig_profile);
    }
    share.memory = slice->memory;
    return share;
  }
  const Gpu* gpu = inventory.Find(uuid);
  if (gpu == nullptr) {
    return Error(Code::kInvalidArgument, "container \"{}\": {} is not a GPU of the node",
                 container.name, uuid);
  }
  if (container.exclusive) share.memory = gpu->memory;
  return share;
}

Status CheckShares(const ContainerRequest& container, const std::vector<DeviceShare>& shares,
                   const NodeInventory& inventory) {
  if (shares.size() != static_cast<size_t>(container.count)) {
    return Error(Code::kInvalidArgument,
                 "container \"{}\": {} devices are assigned, but it requests {}", container.name,
                 shares.size(), container.count);
  }
  for (const DeviceShare& share : shares) {
    ASSIGN_OR_RETURN(const DeviceShare expected, ShareOn(container, inventory, share.uuid));
    if (share == expected) continue;
    return Error(Code::kInvalidArgument,
                 "container \"{}\": {} thousandths and {} bytes of {} are assigned, but it "
                 "requests {} and {}",
                 container.name, share.compute.count(), share.memory.count(), share.uuid,
                 expected.compute.count(), expected.memory.count());
  }
  return Status::Ok();
}

Result<StringMap> AnnotationsFor(const DeviceRequest& request, const Assignment& assignment,
                                 const NodeInventory& inventory, const Binding& binding) {
  RETURN_IF_ERROR(Check(request, assignment, inventory));
  StringMap annotations;
  ASSIGN_OR_RETURN(annotations[std::string(names::kAnnotationAssignment)],
                   EncodeAssignment(assignment));
  RETURN_IF_ERROR(AddGpushare(request, assignment, inventory, binding, &annotations));
  RETURN_IF_ERROR(AddGpuManager(request, assignment, inventory, binding, &annotations));
  return annotations;
}

Result<std::optional<Assignment>> AssignmentFrom(const StringMap& annotations,
                                                 const DeviceRequest& request,
                                                 const NodeInventory& inventory,
                                                 MemoryUnit gpu_mem_unit) {
  constexpr std::string_view kTesseraKey = names::kAnnotationAssignment;
  if (const std::string* own_text = dialects::FindAnnotation(annotations, kTesseraKey)) {
    Result<Assignment> decoded = DecodeAssignment(*own_text);
    if (decoded.ok()) return std::optional<Assignment>(*std::move(decoded));
    return RejectAnnotation(kTesseraKey, "{}", decoded.status().message());
  }
  ASSIGN_OR_RETURN(const auto gpu_manager, DecodeGpuManager(annotations));
  ASSIGN_OR_RETURN(const auto gpushare, DecodeGpushare(annotations));
  const std::string* allocation =
      dialects::FindAnnotation(annotations, names::kAnnotationGpushareAllocation);
  if (!gpu_manager && !gpushare && allocation == nullptr) return std::optional<Assignment>();
  Assignment assignment;
  if (allocation != nullptr) {
    ASSIGN_OR_RETURN(const GpushareAllocation units, DecodeGpushareAllocation(*allocation));
    ASSIGN_OR_RETURN(assignment, FromAllocation(units, request, inventory, gpu_mem_unit));
  } else if (gpushare) {
    ASSIGN_OR_RETURN(assignment, FromGpushare(*gpushare, request, inventory));
  }
  if (gpu_manager) {
    ASSIGN_OR_RETURN(Assignment vcuda, FromGpuManager(*gpu_manager, request, inventory));
    assignment.containers.merge(vcuda.containers);
  }
  return std::optional<Assignment>(std::move(assignment));
}

}  // namespace tessera::device
