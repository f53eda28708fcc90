// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/admission_order.h"

#include <algorithm>
#include <utility>

namespace tessera::agent {

void AdmissionOrder::Set(std::vector<WaitingContainer> waiting) {
  const std::lock_guard lock(mutex_);
  if (waiting == waiting_) return;
  waiting_ = std::move(waiting);
  const auto waits = [&](const Uid& uid, const std::string& container) {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const WaitingContainer& entry) {
      return entry.pod_uid == uid && entry.container == container;
    });
  };
  std::erase_if(allocated_, [&](const Allocation& allocation) {
    return !waits(std::get<0>(allocation), std::get<1>(allocation));
  });
}

const AdmissionOrder::WaitingContainer* AdmissionOrder::Find(std::string_view resource,
                                                             int64_t units) const {
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const WaitingContainer& entry) {
        const auto requested = entry.units.find(resource);
        return requested != entry.units.end() && requested->second == units &&
               !allocated_.contains({entry.pod_uid, entry.container, std::string(resource)});
      });
  return found == waiting_.end() ? nullptr : &*found;
}

std::optional<AdmissionOrder::WaitingContainer> AdmissionOrder::Next(std::string_view resource,
                                                                     int64_t units) const {
  const std::lock_guard lock(mutex_);
  const WaitingContainer* found = Find(resource, units);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void AdmissionOrder::AllocateNext(std::string_view resource, int64_t units) {
  const std::lock_guard lock(mutex_);
  const WaitingContainer* found = Find(resource, units);
  if (found != nullptr)
    allocated_.insert({found->pod_uid, found->container, std::string(resource)});
}

}  // namespace tessera::agent
