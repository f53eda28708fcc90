// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.h"

#include <algorithm>
#include <limits>
#include <string>

#include "src/base/status.h"
#include "src/device/assignment.h"
#include "src/device/dialects.h"
#include "src/device/dialects/gpu_manager_annotations.h"
#include "src/device/dialects/gpushare_annotations.h"
#include "src/device/dialects/plugin_checkpoints.h"
#include "src/device/limit_annotations.h"
#include "src/device/mig_profile.h"
#include "src/device/model.h"
#include "src/device/node_annotation.h"
#include "src/device/pod_annotations.h"
#include "src/device/quantity.h"
#include "tests/fuzz/pod_text.h"

namespace tessera::fuzz {
namespace {

using device::ContainerRequest;
using device::Dialect;

// Whether the input was accepted. Otherwise checks that the error is INVALID_ARGUMENT with a
// message.
template <typename T>
bool Accepted(const Result<T>& result) {
  if (result.ok()) return true;
  TESSERA_CHECK(result.status().code() == Code::kInvalidArgument);
  TESSERA_CHECK(!result.status().message().empty());
  return false;
}

void CheckContainer(const ContainerRequest& container) {
  TESSERA_CHECK((container.count == 0) == (container.dialect == Dialect::kNone));
  TESSERA_CHECK(container.count >= 0 && container.count <= device::kMaxDevicesPerContainer);
  const device::Share& share = container.per_gpu;
  TESSERA_CHECK(share.compute >= MilliGpu(0) && share.compute <= kWholeGpu);
  TESSERA_CHECK(share.memory >= Bytes(0) && share.memory <= device::kMaxShareMemory);
  const bool mig = container.dialect == Dialect::kNvidiaMig;
  TESSERA_CHECK(mig == device::IsMigProfile(container.mig_profile));
  // A container has a part of at most one GPU, and an exclusive container has whole GPUs.
  const bool whole = share.compute == kWholeGpu;
  TESSERA_CHECK(whole || container.count <= 1);
  TESSERA_CHECK(!container.exclusive || (whole && !mig));
  TESSERA_CHECK(container.count == 0 || whole || share.memory > Bytes(0));
}

// Each container with devices runs in exactly one stage, but a sidecar runs in one or more stages
// and also in the last stage.
void CheckStages(const device::DeviceRequest& request) {
  const auto stages = request.Stages();
  for (size_t i = 0; i < request.containers.size(); ++i) {
    const auto runs = [&](const std::vector<size_t>& stage) {
      return std::find(stage.begin(), stage.end(), i) != stage.end();
    };
    const size_t count = std::count_if(stages.begin(), stages.end(), runs);
    const ContainerRequest& container = request.containers[i];
    if (container.count == 0) {
      TESSERA_CHECK(count == 0);
    } else if (container.phase == device::Phase::kSidecar) {
      TESSERA_CHECK(count >= 1 && runs(stages.back()));
    } else {
      TESSERA_CHECK(count == 1);
    }
  }
}

void CheckCheckpoint(std::string_view input,
                     Status (*add)(std::string_view, device::AllocatedMinors*)) {
  device::AllocatedMinors given;
  const Status status = add(input, &given);
  TESSERA_CHECK(status.ok() || status.code() == Code::kInvalidArgument ||
                status.code() == Code::kResourceExhausted);
  TESSERA_CHECK(status.ok() == status.message().empty());
  for (const auto& [container, minors] : given) {
    TESSERA_CHECK(!minors.empty() && minors.size() <= 64);
    for (const int minor : minors) TESSERA_CHECK(minor >= 0 && minor <= 4095);
  }
  const device::AllocatedMinors before = given;
  TESSERA_CHECK(add(input, &given).ToString() == status.ToString());
  TESSERA_CHECK(given == before);
}

}  // namespace

void Quantity(std::string_view input) {
  const Result<int64_t> whole = device::ParseWholeQuantity(input);
  const Result<Bytes> memory = device::ParseMemory(input);
  const Result<device::MilliCpu> cpu = device::ParseCpu(input);
  if (Accepted(whole)) {
    TESSERA_CHECK(*whole >= 0);
    TESSERA_CHECK(memory.ok() && memory->count() == *whole);
    TESSERA_CHECK(*device::ParseWholeQuantity(std::to_string(*whole)) == *whole);
  }
  if (Accepted(memory)) TESSERA_CHECK(*memory >= Bytes(0));
  if (Accepted(cpu)) {
    TESSERA_CHECK(cpu->count() >= 0 && memory.ok());
    // Memory is rounded up to bytes, so it is at least the whole CPUs of the same quantity.
    TESSERA_CHECK(memory->count() >= cpu->count() / 1000);
  }
  const auto compute = device::ParseComputeLimits(input);
  if (compute.ok()) {
    for (const auto& limit : *compute) {
      TESSERA_CHECK(limit.amount > MilliGpu(0) && limit.amount <= kWholeGpu);
    }
  }
  const auto limits = device::ParseMemoryLimits(input);
  if (!Accepted(limits)) return;
  for (const auto& limit : *limits) TESSERA_CHECK(limit.amount > Bytes(0));
  TESSERA_CHECK(device::LimitFor(*limits, "main", "GPU-0").has_value() || !memory.ok() ||
                *memory < Bytes(2 << 20));
}

void Dialects(std::string_view input) {
  const device::PodSpec pod = ParsePodText(input);
  for (const auto unit : {device::MemoryUnit::kGiB, device::MemoryUnit::kMiB}) {
    const Result<device::DeviceRequest> request = device::ParseRequest(pod, {.gpu_mem_unit = unit});
    if (!Accepted(request)) continue;
    TESSERA_CHECK(request->containers.size() == pod.containers.size());
    bool gpu_mem = false;
    for (const ContainerRequest& container : request->containers) {
      CheckContainer(container);
      gpu_mem = gpu_mem || container.dialect == Dialect::kGpuMem;
    }
    TESSERA_CHECK(request->one_gpu == gpu_mem);
    TESSERA_CHECK((request->OneGpuShare().memory > Bytes(0)) == gpu_mem);
    CheckStages(*request);
  }
}

void NodeAnnotation(std::string_view input) {
  const Result<device::NodeInventory> read = device::DecodeNodeInventory(input);
  if (!Accepted(read)) return;
  // Writing truncates long descriptions, so only values that were written are compared in full.
  const Result<std::string> written = device::EncodeNodeInventory(*read);
  if (!written.ok()) {
    TESSERA_CHECK(written.status().code() == Code::kResourceExhausted);
    return;
  }
  const Result<device::NodeInventory> again = device::DecodeNodeInventory(*written);
  TESSERA_CHECK(again.ok());
  TESSERA_CHECK(again->gpus.size() == read->gpus.size() && again->links == read->links);
  TESSERA_CHECK(*device::EncodeNodeInventory(*again) == *written);
}

void Assignment(std::string_view input) {
  const Result<device::Assignment> read = device::DecodeAssignment(input);
  if (!Accepted(read)) return;
  const Result<std::string> written = device::EncodeAssignment(*read);
  if (!written.ok()) {
    TESSERA_CHECK(written.status().code() == Code::kResourceExhausted);
    return;
  }
  TESSERA_CHECK(*device::DecodeAssignment(*written) == *read);
}

void PodAnnotations(std::string_view input) {
  const device::PodSpec pod = ParsePodText(input);
  const auto gpushare = device::DecodeGpushare(pod.annotations);
  if (Accepted(gpushare) && *gpushare) {
    TESSERA_CHECK(*device::DecodeGpushare(device::EncodeGpushare(**gpushare)) == *gpushare);
  }
  const auto gpu_manager = device::DecodeGpuManager(pod.annotations);
  if (Accepted(gpu_manager) && *gpu_manager) {
    TESSERA_CHECK(*device::DecodeGpuManager(device::EncodeGpuManager(**gpu_manager)) ==
                  *gpu_manager);
  }
  const Result<device::DeviceRequest> request = device::ParseRequest(pod, {});
  if (!Accepted(request)) return;
  device::NodeInventory inventory;
  for (int i = 0; i < 4; ++i) {
    inventory.gpus.push_back(
        {.uuid = fmt::format("GPU-{}", i), .index = i, .minor = 3 - i, .memory = GiB(16 << i)});
  }
  const auto assignment =
      device::AssignmentFrom(pod.annotations, *request, inventory, device::MemoryUnit::kGiB);
  if (!Accepted(assignment) || !*assignment) return;
  const auto annotations = device::AnnotationsFor(*request, **assignment, inventory, {.node = "n"});
  if (!annotations.ok()) return;
  TESSERA_CHECK(*device::AssignmentFrom(*annotations, *request, inventory,
                                        device::MemoryUnit::kGiB) == *assignment);
}

void GpushareAllocation(std::string_view input) {
  const Result<device::GpushareAllocation> read = device::DecodeGpushareAllocation(input);
  if (!Accepted(read)) return;
  for (const auto& [container, units_by_minor] : *read) {
    TESSERA_CHECK(container >= 0);
    for (const auto& [minor, units] : units_by_minor) TESSERA_CHECK(minor >= 0 && units >= 0);
  }
}

void KubeletCheckpoint(std::string_view input) {
  CheckCheckpoint(input, device::AddKubeletCheckpoint);
}

void GpuManagerCheckpoint(std::string_view input) {
  CheckCheckpoint(input, device::AddGpuManagerCheckpoint);
}

void Names(std::string_view input) {
  const auto is_label = [](std::string_view text) {
    const auto plain = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    if (text.empty()) return true;
    return text.size() <= 63 && plain(text.front()) && plain(text.back()) &&
           std::all_of(text.begin(), text.end(),
                       [&](char c) { return plain(c) || c == '-' || c == '_' || c == '.'; });
  };
  for (const std::string& name :
       {device::ShortModel(input), device::ProductLabel(input), device::GpuManagerModel(input)}) {
    TESSERA_CHECK(is_label(name));
    TESSERA_CHECK(name.empty() || device::MatchesModel(input, name));
  }
  TESSERA_CHECK(!device::IsMigProfile(input) || is_label(input));
  if (const auto link = device::LinkFromName(input)) {
    TESSERA_CHECK(device::LinkFromName(device::NameOf(*link)) == link);
  }
}

}  // namespace tessera::fuzz
