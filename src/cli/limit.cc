// SPDX-License-Identifier: Apache-2.0
#include "src/cli/limit.h"

#include <algorithm>

#include "api/names.h"
#include "src/cli/table.h"
#include "src/cli/text.h"
#include "src/device/memory_limit.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kNone = "none";

bool HasContainer(const ledger::PodEntry& pod, const std::string& name) {
  return std::ranges::any_of(pod.ask.request.containers, [&](const auto& container) {
    return container.name == name && container.dialect != device::Dialect::kNone;
  });
}

bool HasGpu(const ledger::PodEntry& pod, const std::string& uuid) {
  return std::ranges::any_of(pod.assignment.containers, [&](const auto& container) {
    return std::ranges::any_of(container.second,
                               [&](const auto& share) { return share.uuid == uuid; });
  });
}

Status CheckShare(const std::string& container, const device::DeviceShare& share, Bytes limit) {
  if (share.compute == kWholeGpu) {
    return Error(Code::kInvalidArgument,
                 "container {} has all of {}: only shares of a GPU are limited", container,
                 share.uuid);
  }
  if (limit <= share.memory) return Status::Ok();
  return Error(Code::kInvalidArgument,
               "container {} was granted {} of {}, and a limit only lowers that: make the pod anew "
               "with a larger request",
               container, MemoryText(share.memory), share.uuid);
}

Status Check(const ledger::PodEntry& pod, const device::MemoryLimits& limits) {
  for (const device::MemoryLimit& limit : limits) {
    if (limit.only.empty() || HasContainer(pod, limit.only) || HasGpu(pod, limit.only)) continue;
    return Error(
        Code::kInvalidArgument,
        "\"{}\" is neither a container of pod {} with GPUs nor the UUID of one of them: see "
        "\"tessera explain\"",
        limit.only, pod.ask.Text());
  }
  for (const auto& [container, shares] : pod.assignment.containers) {
    for (const device::DeviceShare& share : shares) {
      const auto limit = device::LimitFor(limits, container, share.uuid);
      if (limit) RETURN_IF_ERROR(CheckShare(container, share, *limit));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Json> LimitPatch(const ledger::PodEntry& pod, const std::string& memory) {
  Json value;  // null
  if (memory != kNone) {
    ASSIGN_OR_RETURN(const device::MemoryLimits limits,
                     device::ParseMemoryLimits(memory).Annotate("--memory"));
    if (limits.empty()) {
      return Status(Code::kInvalidArgument, "--memory: want an amount, such as 8Gi, or \"none\"");
    }
    RETURN_IF_ERROR(Check(pod, limits).Annotate("--memory"));
    value = Json::String(memory);
  }
  Json annotations = Json::MakeObject();
  annotations.Set(names::kAnnotationMemoryLimit, std::move(value));
  return Json::MakeObject(
      {{"metadata", Json::MakeObject({{"uid", Json::String(pod.ask.uid)},
                                      {"annotations", std::move(annotations)}})}});
}

std::string LimitText(const ledger::PodEntry& pod, const std::string& memory) {
  const auto limits = device::ParseMemoryLimits(memory == kNone ? "" : memory);
  Paper paper(false);
  bool any = false;
  for (const auto& [container, shares] : pod.assignment.containers) {
    for (const device::DeviceShare& share : shares) {
      if (!limits.ok() || share.compute == kWholeGpu) continue;
      const Bytes limit = device::LimitFor(*limits, container, share.uuid).value_or(share.memory);
      paper.Line(
          fmt::format("Container {} may use {} of {}.", container, MemoryText(limit), share.uuid));
      any = true;
    }
  }
  if (!any) paper.Line("The limit will hold when the pod is placed.");
  return paper.Take();
}

}  // namespace tessera::cli
