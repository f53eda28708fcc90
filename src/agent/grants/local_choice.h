// SPDX-License-Identifier: Apache-2.0
// Chooses GPUs for a pod that bypasses the scheduler. A share goes to the GPU with the least room
// left (best fit). Whole GPUs are those that the kubelet named if they are free, else the GPUs with
// the best links. Containers that share GPUs (DeviceRequest::Groups) get the GPUs that one of them
// already has, whatever the kubelet named. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/agent/grants/gpu_accounts.h"
#include "src/agent/kubelet/device_set.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/device/assignment.h"
#include "src/device/request.h"

namespace tessera::agent {

struct LocalDemand {
  Uid pod_uid;
  const device::DeviceRequest* request = nullptr;
  std::string container;                  // the starting container
  bool phases_known = true;               // false: only the tokens are known
  std::vector<std::string> kubelet_gpus;  // whole GPUs that the kubelet named
  // GPUs that other pods hold by tokens that name them. The kubelet may know that such a pod has
  // ended and name its GPU again, so the GPU is not replaced by another.
  std::set<std::string, std::less<>> contested_gpus;
  device::Assignment assignment;  // GPUs of the pod's containers so far
};

// Returns `demand.assignment` with the GPUs of this container and of every other container of the
// pod with a share, because these must fit later. The GPUs of other containers with whole GPUs are
// chosen when they start, because the kubelet names them then; they must fit now, too.
// RESOURCE_EXHAUSTED names the missing amount.
Result<device::Assignment> ChooseLocally(const LocalDemand& demand, const DeviceSet& set,
                                         GpuAccounts accounts);

// The hold of one container on the GPU of one share.
Hold HoldOf(const Uid& pod_uid, const device::ContainerRequest& container,
            const device::DeviceShare& share);

}  // namespace tessera::agent
