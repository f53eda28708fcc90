// SPDX-License-Identifier: Apache-2.0
// Which GPUs a pod gets that came past the scheduler, so that nobody chose any for it: shares go to
// the GPU where they leave the least behind, whole GPUs are those that the kubelet named, where
// they are free, else the best linked ones. Containers that use the same GPUs (Request::Groups)
// keep to those that one of them has already, whatever the kubelet named. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/agent/grants/gpu_accounts.h"
#include "src/agent/kubelet/device_set.h"
#include "src/base/status.h"
#include "src/device/assignment.h"
#include "src/device/request.h"

namespace tessera::agent {

struct LocalQuestion {
  std::string pod_uid;
  const device::Request* request = nullptr;
  std::string container;           // that starts now
  bool phases_known = true;        // when its containers run; else only what tokens say is
  std::vector<std::string> named;  // by the kubelet, where it asks for whole GPUs
  // GPUs that other pods have by tokens that name them. Where the kubelet names one again it may
  // know better who lives, so it is not replaced by another.
  std::set<std::string, std::less<>> contested;
  device::Assignment assigned;  // what containers of the pod have already
};

// `assigned`, and what the container gets, and what every other container of the pod gets that
// shares GPUs: they must find room later. Other containers with whole GPUs choose when they start,
// because the kubelet names theirs then; there must be room for them now. RESOURCE_EXHAUSTED says
// what there is no room for.
Result<device::Assignment> ChooseLocally(const LocalQuestion& question, const DeviceSet& set,
                                         GpuAccounts accounts);

// The dialect's part of what a container holds.
Hold HoldOf(const std::string& pod_uid, const device::ContainerRequest& container,
            const device::DeviceShare& share);

}  // namespace tessera::agent
