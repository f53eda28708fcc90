// SPDX-License-Identifier: Apache-2.0
#include "src/cli/limit.h"

#include <algorithm>

#include "api/names.h"
#include "src/cli/output/table.h"
#include "src/cli/output/text.h"
#include "src/device/limit_annotations.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kNone = "none";

bool HasContainer(const ledger::PodEntry& pod, const std::string& name) {
  return std::ranges::any_of(pod.request.devices->containers, [&](const auto& container) {
    return container.name == name && container.dialect != device::Dialect::kNone;
  });
}

bool HasGpu(const ledger::PodEntry& pod, const std::string& uuid) {
  return std::ranges::any_of(pod.assignment().containers, [&](const auto& container) {
    return std::ranges::any_of(container.second,
                               [&](const auto& share) { return share.uuid == uuid; });
  });
}

// One kind of limit: its flag, its annotation, and the maximum for a share.
struct MemoryLimitKind {
  static constexpr std::string_view kFlag = "--memory";
  static constexpr std::string_view kAnnotation = names::kAnnotationMemoryLimit;
  static auto Parse(std::string_view text) { return device::ParseMemoryLimits(text); }
  static Bytes MaxOf(const ledger::PodEntry&, const device::DeviceShare& share) {
    return share.memory;
  }
  static std::string Text(Bytes memory) { return MemoryText(memory); }
};

struct ComputeLimitKind {
  static constexpr std::string_view kFlag = "--compute";
  static constexpr std::string_view kAnnotation = names::kAnnotationComputeLimit;
  static auto Parse(std::string_view text) { return device::ParseComputeLimits(text); }
  static MilliGpu MaxOf(const ledger::PodEntry& pod, const device::DeviceShare& share) {
    if (share.compute == MilliGpu(0)) return share.compute;
    return std::max(share.compute, pod.request.devices->elastic_limit.value_or(MilliGpu(0)));
  }
  static std::string Text(MilliGpu compute) {
    return fmt::format("{} hundredths of the time", compute.count() / 10);
  }
};

template <typename Kind>
Status CheckKind(const ledger::PodEntry& pod, const std::string& container,
                 const device::DeviceShare& share) {
  if (share.compute == kWholeGpu) {
    return Error(Code::kInvalidArgument, "container {} has all of {}: only shares can be limited",
                 container, share.uuid);
  }
  if (Kind::MaxOf(pod, share).count() > 0) return Status::Ok();
  return Error(Code::kInvalidArgument,
               "container {} shares only the memory of {}: its compute cannot be limited",
               container, share.uuid);
}

template <typename Kind, typename Amount>
Status CheckShare(const ledger::PodEntry& pod, const std::string& container,
                  const device::DeviceShare& share, Amount limit) {
  const Amount max = Kind::MaxOf(pod, share);
  if (limit <= max) return Status::Ok();
  return Error(Code::kInvalidArgument,
               "container {} was granted at most {} of {}, and a limit can only lower that: create "
               "the pod again with a larger request",
               container, Kind::Text(max), share.uuid);
}

template <typename Kind, typename Amount>
Status Check(const ledger::PodEntry& pod, const device::GpuLimits<Amount>& limits) {
  for (const auto& limit : limits) {
    if (limit.applies_to.empty() || HasContainer(pod, limit.applies_to) ||
        HasGpu(pod, limit.applies_to))
      continue;
    return Error(
        Code::kInvalidArgument,
        "\"{}\" is neither a container of pod {} with GPUs nor the UUID of one of them: see "
        "\"tessera explain\"",
        limit.applies_to, pod.request.Text());
  }
  const bool has_share = std::ranges::any_of(
      pod.request.devices->containers, [](const device::ContainerRequest& container) {
        return container.dialect != device::Dialect::kNone && !container.exclusive;
      });
  if (!has_share) {
    return Error(Code::kInvalidArgument, "pod {} requests whole GPUs: only shares can be limited",
                 pod.request.Text());
  }
  // A limit for a GPU or for all containers skips shares that cannot have it.
  Status skipped;
  bool any = false;
  for (const auto& [container, shares] : pod.assignment().containers) {
    for (const device::DeviceShare& share : shares) {
      const auto limit = device::LimitFor(limits, container, share.uuid);
      if (!limit) continue;
      const Status can_be_limited = CheckKind<Kind>(pod, container, share);
      if (!can_be_limited.ok()) {
        if (device::NamesContainer(limits, container)) return can_be_limited;
        skipped = can_be_limited;
        continue;
      }
      RETURN_IF_ERROR(CheckShare<Kind>(pod, container, share, *limit));
      any = true;
    }
  }
  return any ? Status::Ok() : skipped;
}

template <typename Kind>
Status CheckText(const std::string& text) {
  if (text.empty() || text == kNone) return Status::Ok();
  return Kind::Parse(text).status().Annotate(Kind::kFlag);
}

template <typename Kind>
Status SetAnnotation(const ledger::PodEntry& pod, const std::string& text, Json* annotations) {
  if (text.empty()) return Status::Ok();
  Json value;  // null
  if (text != kNone) {
    ASSIGN_OR_RETURN(const auto limits, Kind::Parse(text).Annotate(Kind::kFlag));
    RETURN_IF_ERROR(Check<Kind>(pod, limits).Annotate(Kind::kFlag));
    value = Json::String(text);
  }
  annotations->Set(Kind::kAnnotation, std::move(value));
  return Status::Ok();
}

// The container's new limit; "" if the annotation is unchanged.
template <typename Kind>
std::string TextOf(const ledger::PodEntry& pod, const std::string& container,
                   const device::DeviceShare& share, const std::string& text) {
  const auto limits = Kind::Parse(text == kNone ? "" : text);
  const auto max = Kind::MaxOf(pod, share);
  if (text.empty() || !limits.ok() || max.count() == 0) return "";
  return Kind::Text(device::LimitFor(*limits, container, share.uuid).value_or(max));
}

template <typename Kind>
bool AppliesTo(const ContainerUse& use, const std::string& text) {
  if (text == kNone) return false;
  const auto limits = Kind::Parse(text);
  return limits.ok() && device::LimitFor(*limits, use.container, use.uuid).has_value();
}

}  // namespace

Status CheckNewLimits(const NewLimits& limits) {
  if (limits.memory.empty() && limits.compute.empty()) {
    return Error(Code::kInvalidArgument, "want an amount, such as {} 8Gi or {} 20, or \"none\"",
                 MemoryLimitKind::kFlag, ComputeLimitKind::kFlag);
  }
  RETURN_IF_ERROR(CheckText<MemoryLimitKind>(limits.memory));
  return CheckText<ComputeLimitKind>(limits.compute);
}

Result<Json> LimitPatch(const ledger::PodEntry& pod, const NewLimits& limits) {
  RETURN_IF_ERROR(CheckNewLimits(limits));
  Json annotations = Json::MakeObject();
  RETURN_IF_ERROR(SetAnnotation<MemoryLimitKind>(pod, limits.memory, &annotations));
  RETURN_IF_ERROR(SetAnnotation<ComputeLimitKind>(pod, limits.compute, &annotations));
  return Json::MakeObject(
      {{"metadata", Json::MakeObject({{"uid", Json::String(pod.request.uid.str())},
                                      {"annotations", std::move(annotations)}})}});
}

Status CheckLimited(const std::vector<ContainerUse>& uses, const NewLimits& limits) {
  for (const ContainerUse& use : uses) {
    const bool applies = AppliesTo<MemoryLimitKind>(use, limits.memory) ||
                         AppliesTo<ComputeLimitKind>(use, limits.compute);
    if (use.limited || !applies) continue;
    return Error(
        Code::kFailedPrecondition,
        "container {} has no limiter on {}, so no limit can hold: isolation is off on node "
        "{}, was off when the container started, or its namespace is in limits.failOpen: change "
        "this, and restart the pod",
        use.container, use.uuid, use.node);
  }
  return Status::Ok();
}

std::string LimitText(const ledger::PodEntry& pod, const NewLimits& limits,
                      const std::vector<ContainerUse>& uses) {
  TextOutput output(false);
  bool any = false;
  for (const auto& [container, shares] : pod.assignment().containers) {
    for (const device::DeviceShare& share : shares) {
      if (share.compute == kWholeGpu) continue;
      const std::string memory = TextOf<MemoryLimitKind>(pod, container, share, limits.memory);
      const std::string compute = TextOf<ComputeLimitKind>(pod, container, share, limits.compute);
      if (memory.empty() && compute.empty()) continue;
      const char* between = memory.empty() || compute.empty() ? "" : " and ";
      output.AddLine(fmt::format("Container {} may use {}{}{} of {}.", container, memory, between,
                                 compute, share.uuid));
      any = true;
      const auto use = std::ranges::find_if(uses, [&, &name = container](const ContainerUse& each) {
        return each.container == name && each.uuid == share.uuid;
      });
      const auto parsed = MemoryLimitKind::Parse(limits.memory == kNone ? "" : limits.memory);
      if (memory.empty() || !parsed.ok() || use == uses.end()) continue;
      const Bytes max = device::LimitFor(*parsed, container, share.uuid)
                            .value_or(MemoryLimitKind::MaxOf(pod, share));
      if (use->used <= max) continue;
      output.AddLine(fmt::format("It holds {} now: its allocations fail until it holds less.",
                                 MemoryText(use->used)));
    }
  }
  if (!pod.holds_gpus()) {
    output.AddLine("The limit takes effect when the pod is placed.");
  } else if (!any) {
    output.AddLine("Nothing changes: no container of the pod has such a limit.");
  }
  return output.Take();
}

}  // namespace tessera::cli
