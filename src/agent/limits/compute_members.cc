// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/compute_members.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/device/limit_annotations.h"
#include "src/device/limit_variables.h"

namespace tessera::agent {
namespace {

using limiter::ComputeShare;
using limiter::PriorityClass;

double PartOfGpu(MilliGpu compute) { return static_cast<double>(compute.count()) / 1000; }

PriorityClass ClassOf(const PodInfo& pod) {
  const auto text = pod.annotations.find(names::kAnnotationComputeClass);
  if (text == pod.annotations.end()) return PriorityClass::kNormal;
  if (text->second == names::kComputeClassHigh) return PriorityClass::kHigh;
  if (text->second == names::kComputeClassLow) return PriorityClass::kLow;
  return PriorityClass::kNormal;
}

// Lowers the container's share of one GPU to the limit, if `limits` has one for it.
void Apply(const Result<device::GpuLimits<MilliGpu>>& limits, const std::string& container,
           const std::string& uuid, ComputeShare* share) {
  if (!limits.ok()) return;
  const auto limit = device::LimitFor(*limits, container, uuid);
  if (!limit) return;
  share->request = std::min(share->request, PartOfGpu(*limit));
  share->limit = std::min(share->limit, PartOfGpu(*limit));
}

ComputeShare ShareOf(const ContainerUsage::RegionFiles& container,
                     const device::DeviceShare& granted, const PodInfo* pod) {
  const std::string& name = container.holder.container;
  ComputeShare share{.request = PartOfGpu(granted.compute), .limit = PartOfGpu(granted.compute)};
  if (pod != nullptr) {
    share.priority = ClassOf(*pod);
    if (granted.compute.count() > 0 && pod->request.ok() && pod->request->elastic_limit) {
      share.limit = std::max(share.request, PartOfGpu(*pod->request->elastic_limit));
    }
    const auto text = pod->annotations.find(names::kAnnotationComputeLimit);
    if (text != pod->annotations.end()) {
      Apply(device::ParseComputeLimits(text->second), name, granted.uuid, &share);
    }
  }
  Apply(device::ComputeLimitsOf(container.env, container.shares), name, granted.uuid, &share);
  return share;
}

}  // namespace

bool IsUseOf(const ContainerGpuUse& use, const ComputeControl::Member& member) {
  return use.uuid == member.uuid && use.holder.pod_uid == member.pod_uid &&
         use.holder.container == member.container;
}

std::vector<ComputeControl::Member> ComputeMembers(
    const std::vector<ContainerUsage::RegionFiles>& files, const ContainerUses& uses,
    const Pods::Map& pods) {
  std::vector<ComputeControl::Member> members;
  for (const ContainerUsage::RegionFiles& container_files : files) {
    const auto found = pods.find(container_files.holder.pod_uid);
    const PodInfo* pod = found != pods.end() ? &*found->second : nullptr;
    for (const device::DeviceShare& share : container_files.shares) {
      if (share.compute == kWholeGpu) continue;
      ComputeControl::Member member{.pod_uid = container_files.holder.pod_uid,
                                    .container = container_files.holder.container,
                                    .uuid = share.uuid,
                                    .share = ShareOf(container_files, share, pod),
                                    .limits = container_files.limits,
                                    .usage = container_files.usage};
      const auto use = std::ranges::find_if(
          uses, [&](const ContainerGpuUse& each) { return IsUseOf(each, member); });
      if (use != uses.end() && use->is_read) member.utilization = use->utilization;
      members.push_back(std::move(member));
    }
  }
  return members;
}

}  // namespace tessera::agent
